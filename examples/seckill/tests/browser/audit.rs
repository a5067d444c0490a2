//! Checks of a page that a script can make: labels, contrast, focus, width. And checks of the checks.

use serde_json::Value;

use crate::webdriver::{Browser, TAB};

const SCRIPT: &str = include_str!("audit.js");

/// Panics with all that is wrong with the page that is open.
pub(crate) async fn assert_sound(browser: &Browser, what: &str) {
    let wrong = wrong(browser).await;
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

/// The id of the element that has the focus. Panics where that does not show.
pub(crate) async fn focus(browser: &Browser) -> String {
    let focus = browser.run(SCRIPT, &["focus"]).await;
    assert_eq!(strings(&focus["wrong"]), [""; 0]);
    focus["id"].as_str().unwrap().to_owned()
}

async fn wrong(browser: &Browser) -> Vec<String> {
    strings(&browser.run(SCRIPT, &["page"]).await)
}

fn strings(list: &Value) -> Vec<String> {
    serde_json::from_value(list.clone()).unwrap()
}

/// A page with nothing wrong.
const CLEAN: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>Clean</title>\
     <meta name=viewport content='width=device-width'><meta name=color-scheme content='light dark'>\
     <style>:focus-visible { outline: 3px solid }</style><main><h1>Clean</h1>\
     <p><label>Name <input style='height: 30px' id=name></label></p></main>";

/// What is put into it, and what has to be said of that.
const PLANTED: [(&str, &str); 16] = [
    ("<input style='height: 30px'>", "has no label"),
    (
        "<button style='height: 30px; width: 30px'></button>",
        "has no label",
    ),
    ("<svg width=30 height=30></svg>", "has no label"),
    ("<progress></progress>", "has no label"),
    ("<table><tr><td>1</table>", "has no caption"),
    (
        "<table><caption>A</caption><tr><th>1</table>",
        "th without scope",
    ),
    (
        "<label for=nowhere>Name</label>",
        "refers to #nowhere, which is not there",
    ),
    ("<b id=name>Name</b>", "is there twice"),
    ("<h4>Deep</h4>", "comes after a heading of level 1"),
    ("<h1>Second</h1>", "the page has 2 h1"),
    (
        "<button style='height: 10px; border: 0; padding: 0; font-size: 8px'>Go</button>",
        "too small to hit",
    ),
    (
        "<p style='color: #808080; background: white'>pale</p>",
        "has a contrast of 3.95",
    ),
    (
        "<p style='color: rgb(0 0 0 / 50%); background: white'>thin</p>",
        "has a contrast of 4.00",
    ),
    (
        "<div style='color: white; background: black'><p style='background: #ffffff80'>on half</p></div>",
        "has a contrast of 3.95",
    ),
    (
        "<p style='color: color-mix(in srgb, white, #808080); background: white'>mixed</p>",
        "has a contrast of 1.84",
    ),
    ("<div style='width: 1400px'>wide</div>", "the page is 14"),
];

#[tokio::test]
async fn what_is_wrong_with_a_page_is_found() {
    let browser = Browser::start().await;
    browser.screen(1280, 800).await;
    browser.open("data:text/html,").await;
    let show = async |more: &str| {
        let script = "document.open(); document.write(arguments[0]); document.close()";
        browser.run(script, &[&format!("{CLEAN}{more}")]).await;
    };
    for scheme in ["light", "dark"] {
        browser.scheme(scheme).await;
        show("").await;
        assert_sound(&browser, scheme).await;
        for (planted, said) in PLANTED {
            show(planted).await;
            let wrong = wrong(&browser).await;
            assert!(
                wrong.len() == 1 && wrong[0].contains(said),
                "{planted}: {wrong:?}"
            );
        }
    }
    // On white it would be right.
    show("<p style='color: black'>black</p>").await;
    assert!(wrong(&browser).await[0].contains("has a contrast of 1."));

    for (style, said) in [
        ("", ""),
        ("outline: none", "has no outline"),
        ("outline: 1px solid", "has no outline"),
        ("outline: 3px solid Canvas", "does not stand out"),
    ] {
        show(&format!("<style>#name:focus {{ {style} }}</style>")).await;
        browser.press([TAB]).await;
        let focus = browser.run(SCRIPT, &["focus"]).await;
        assert_eq!(focus["id"], "name");
        let wrong = strings(&focus["wrong"]).concat();
        assert!(
            wrong.contains(said) && wrong.is_empty() == said.is_empty(),
            "{style}: {focus}"
        );
    }

    browser.console().await;
    browser.run("console.error('planted')", &[]).await;
    let console = browser.console().await;
    assert!(
        console.len() == 1 && console[0].1.contains("planted"),
        "{console:?}"
    );
    browser.quit().await;
}
