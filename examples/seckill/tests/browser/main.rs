//! The page as people use it: a real Chromium, two real instances, and the database beside them.
//!
//! `SECKILL_PICTURES=1 cargo test -p seckill --test browser` makes the README's pictures anew.
mod audit;
mod page;
mod shop;
mod webdriver;

use std::time::Duration;

use self::audit::assert_sound;
use self::page::Page;
use self::shop::{Books, Shop};
use self::webdriver::Browser;

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

const DESK: (u32, u32) = (1280, 800);
const PHONE: (u32, u32) = (360, 800);

const OPEN_THE_STORY: &str =
    "for (const step of document.querySelectorAll('#story details')) step.open = true";

/// As a stream is that an instance was asked for in the moment it died.
const FIRST_STREAM_IS_REFUSED: &str = "
    let first = true;
    window.EventSource = class extends EventSource {
        constructor(url) { super(first ? '/nothing' : url); first = false; }
    };";

const FIRST_ORDER_IS_REFUSED: &str = "
    const there = window.fetch;
    window.fetch = (path, options) => {
        if (!path.endsWith('/seckill')) return there(path, options);
        window.fetch = there;
        return there('/nothing');
    };";

#[tokio::test]
async fn by_keyboard_alone_a_sale_is_made_and_rushed_and_nobody_has_two() {
    let shop = Shop::open(&[]);
    let browser = Browser::start().await;
    let page = Page::open(&browser, &shop, DESK).await;
    page.write("sale-name", "Tea").await;
    page.write("sale-stock", "20").await;
    page.press("create-sale").await;
    page.says("sale-result", "Tea and Tea, no lock: on sale.")
        .await;
    page.write("rush-users", "60").await;
    page.press("start-rush").await;
    page.says("rush-result", "It is over.").await;

    let locked = page.books('a').await;
    let right = Books {
        sold: 20,
        duplicates: 0,
        oversold: 0,
        stock: 0,
    };
    assert_eq!(locked, right);
    assert_eq!(shop.books("Tea").await, right);
    assert_eq!(page.verdict('a').await, "right");

    // Whatever came of it without a lock, the page tells the truth.
    let unlocked = page.books('b').await;
    assert_eq!(shop.books("Tea, no lock").await, unlocked);
    let wrong = unlocked.duplicates + unlocked.oversold > 0;
    assert_eq!(
        page.verdict('b').await,
        if wrong { "wrong" } else { "right" }
    );
    assert_eq!(browser.console().await, []);
    browser.quit().await;
}

#[tokio::test]
async fn an_instance_that_is_killed_by_a_button_leaves_nobody_with_two() {
    // Each instance sends for one user after the other, and has 100: 10 s, and the button comes first.
    let shop = Shop::open(&["--chaos", "--think", "100ms"]);
    let browser = Browser::start().await;
    let page = Page::open(&browser, &shop, PHONE).await;
    browser.fill("sale-name", "Tea").await;
    browser.click("sale-compare").await;
    browser.click("create-sale").await;
    page.says("sale-result", "Tea: on sale.").await;
    browser.fill("rush-users", "200").await;
    browser.fill("rush-concurrency", "6").await;
    browser.run(FIRST_STREAM_IS_REFUSED, &[]).await;
    browser.click("start-rush").await;
    page.says("panel-a-state", "runs").await;
    browser.click("fault-kill").await;
    page.says("fault-result", "Killed ").await;
    page.says("rush-result", "It is over.").await;

    let instances = browser.text("panel-a-instances").await;
    assert!(
        instances.contains("gone"),
        "nobody died in the middle: {instances}"
    );
    let shown = page.books('a').await;
    assert!(shown.sold > 0, "{shown:?}");
    assert_eq!((shown.duplicates, shown.oversold), (0, 0));
    assert_eq!(shown.stock, 200 - shown.sold);
    assert_eq!(shop.books("Tea").await, shown);
    assert_eq!(page.verdict('a').await, "right");
    // What was asked of the dead one may have failed, and the browser notes that.
    let console = browser.console().await;
    let own: Vec<_> = console
        .iter()
        .filter(|(source, _)| source != "network")
        .collect();
    assert!(own.is_empty(), "{own:?}");
    browser.quit().await;
}

/// The page said "You are in the queue." for ever, and the pass was of no more use.
#[tokio::test]
async fn who_was_refused_in_the_waiting_room_could_not_try_again() {
    let shop = Shop::open(&[]);
    let browser = Browser::start().await;
    let page = Page::open(&browser, &shop, DESK).await;
    browser.fill("sale-name", "Tea").await;
    browser.click("sale-room").await;
    browser.click("sale-compare").await;
    browser.click("create-sale").await;
    page.says("sale-result", "Tea: on sale.").await;
    for refusal in [FIRST_STREAM_IS_REFUSED, FIRST_ORDER_IS_REFUSED] {
        browser.run(refusal, &[]).await;
    }
    browser.click("room-join").await;
    page.says("room-position", "You were refused.").await;
    browser.click("room-join").await;
    page.says("room-position", "You may order now").await;
    browser.click("room-order").await;
    page.says("room-position", "not found").await;
    browser.click("room-order").await;
    page.says("room-position", "Ordered: ").await;
    browser.quit().await;
}

#[tokio::test]
async fn the_story_is_told_and_run_on_the_page() {
    let shop = Shop::open(&["--chaos", "--think", "20ms"]);
    let browser = Browser::start().await;
    let page = Page::open(&browser, &shop, PHONE).await;
    page.says("story", "8. fenced").await;
    browser.run(OPEN_THE_STORY, &[]).await;
    let named =
        "return [...document.querySelectorAll('#story figure')].map((one) => one.innerText)";
    let pictures = browser.run(named, &[]).await;
    assert_eq!(pictures.as_array().unwrap().len(), 8);
    assert!(pictures[1].as_str().unwrap().contains("taken for ever"));

    browser.fill("sale-name", "Tea").await;
    browser.click("sale-compare").await;
    browser.click("create-sale").await;
    page.says("sale-result", "Tea: on sale.").await;

    // A slow holder: what the page counts is what the database has.
    browser.click("story-4-run").await;
    page.says("story-4-result", "second orders of a user.")
        .await;
    let shown = page.books('a').await;
    assert!(shown.duplicates > 0, "{shown:?}");
    let sale = browser.text("panel-a-title").await;
    assert_eq!(shop.books(sale.split(" (").next().unwrap()).await, shown);
    page.says("story-4-result", &format!("{} second", shown.duplicates))
        .await;

    // A killed holder.
    browser.click("story-2-run").await;
    page.says("story-2-result", "locked out for good.").await;
    let result = browser.text("story-2-result").await;
    assert!(result.contains("Killed "), "{result}");
    assert!(!result.contains(" 0 users are locked out"), "{result}");

    // The sale that was made before has its place again.
    browser.fill("rush-users", "20").await;
    browser.click("start-rush").await;
    page.says("rush-result", "It is over.").await;
    page.says("panel-a-title", "Tea").await;
    assert_eq!(shop.books("Tea").await, page.books('a').await);
    browser.quit().await;

    // Where nothing can be broken, the steps that need it say so.
    let shop = Shop::open(&[]);
    let browser = Browser::start().await;
    let page = Page::open(&browser, &shop, PHONE).await;
    page.says("story", "8. fenced").await;
    browser.run(OPEN_THE_STORY, &[]).await;
    page.says("story-2-result", "up --chaos").await;
    let disabled = browser
        .run(
            "return document.getElementById('story-2-run').disabled",
            &[],
        )
        .await;
    assert_eq!(disabled, true);
    assert_eq!(browser.console().await, []);
    browser.quit().await;
}

#[tokio::test]
async fn the_pages_can_be_read_on_a_desk_and_on_a_phone_in_light_and_dark() {
    let shop = Shop::open(&["--chaos"]);
    let browser = Browser::start().await;
    let page = Page::open(&browser, &shop, DESK).await;
    browser.fill("sale-name", "Tea").await;
    browser.click("create-sale").await;
    page.says("sale-result", "Tea and Tea, no lock: on sale.")
        .await;
    browser.fill("rush-users", "300").await;
    browser.click("start-rush").await;
    page.says("rush-result", "It is over.").await;
    browser.run(OPEN_THE_STORY, &[]).await;
    for screen in [DESK, PHONE] {
        for scheme in ["light", "dark"] {
            browser.screen(screen.0, screen.1).await;
            browser.scheme(scheme).await;
            assert_sound(&browser, &format!("the page, {scheme}, {screen:?}")).await;
        }
    }
    if std::env::var_os("SECKILL_PICTURES").is_some() {
        for (name, screen, scheme, from) in [
            ("light", DESK, "light", "live-heading"),
            ("dark", DESK, "dark", "live-heading"),
            ("phone", PHONE, "light", "panel-a"),
            ("story", PHONE, "dark", "story-3"),
        ] {
            browser.screen(screen.0, screen.1).await;
            browser.scheme(scheme).await;
            page.picture(name, from).await;
        }
    }
    browser.open(&format!("{}/docs", shop.url)).await;
    page.says("operations", "GET /api/vouchers").await;
    for screen in [DESK, PHONE] {
        for scheme in ["light", "dark"] {
            browser.screen(screen.0, screen.1).await;
            browser.scheme(scheme).await;
            assert_sound(&browser, &format!("the API, {scheme}, {screen:?}")).await;
        }
    }
    assert_eq!(browser.console().await, []);
    browser.quit().await;
}
