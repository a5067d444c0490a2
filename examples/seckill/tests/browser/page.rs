//! What a visitor does with the page and reads from it.

use std::fs;
use std::path::Path;

use tests::eventually;

use crate::LONG;
use crate::audit::focus;
use crate::shop::{Books, Shop};
use crate::webdriver::{Browser, ENTER, TAB};

/// The tab stops of the page are fewer.
const MOST_STOPS: usize = 60;

const LARGEST_PICTURE: usize = 200_000;

/// The page, open in a browser.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    browser: &'a Browser,
}

impl<'a> Page<'a> {
    /// Opens the page on a screen of this size, and waits until it has found its shop.
    pub(crate) async fn open(browser: &'a Browser, shop: &Shop, screen: (u32, u32)) -> Self {
        browser.screen(screen.0, screen.1).await;
        browser.open(&shop.url).await;
        let page = Self { browser };
        page.says("status", "2 instances serve.").await;
        page
    }

    /// Waits until an element has this text in it.
    #[track_caller]
    pub(crate) fn says(&self, id: &str, text: &str) -> impl Future<Output = ()> {
        eventually(LONG, move || async move {
            let said = self.browser.text(id).await;
            if said.contains(text) {
                Ok(())
            } else {
                Err(format!("#{id} says {said:?}"))
            }
        })
    }

    /// Writes into a field by keyboard. To come to a field with Tab selects what is in it.
    pub(crate) async fn write(&self, id: &str, text: &str) {
        self.tab_to(id).await;
        self.browser.press(text.chars()).await;
    }

    /// Presses a button by keyboard.
    pub(crate) async fn press(&self, id: &str) {
        self.tab_to(id).await;
        self.browser.press([ENTER]).await;
    }

    /// Presses Tab until an element has the focus, and checks that the focus shows all the way.
    async fn tab_to(&self, id: &str) {
        let mut stops = Vec::new();
        while stops.last().is_none_or(|stop| stop != id) {
            assert!(
                stops.len() < MOST_STOPS,
                "Tab does not come to #{id}: {stops:?}"
            );
            self.browser.press([TAB]).await;
            stops.push(focus(self.browser).await);
        }
    }

    /// What a panel says in the end.
    pub(crate) async fn books(&self, panel: char) -> Books {
        Books {
            sold: self.number(panel, "sold").await,
            duplicates: self.number(panel, "duplicates").await,
            oversold: self.number(panel, "oversold").await,
            stock: self.number(panel, "stock").await,
        }
    }

    /// Whether a panel says `right` or `wrong`.
    pub(crate) async fn verdict(&self, panel: char) -> String {
        let script = "return document.getElementById(arguments[0]).dataset.verdict ?? 'none'";
        let verdict = self
            .browser
            .run(script, &[&format!("panel-{panel}-verdict")])
            .await;
        verdict.as_str().unwrap().to_owned()
    }

    /// The first number of a part of a panel.
    async fn number(&self, panel: char, part: &str) -> i64 {
        let text = self.browser.text(&format!("panel-{panel}-{part}")).await;
        let number = text.split(' ').next().unwrap().replace(',', "");
        number
            .parse()
            .unwrap_or_else(|_| panic!("panel {panel}: {part} is {text:?}"))
    }

    /// Writes what the screen shows from an element on to a file for the README.
    pub(crate) async fn picture(&self, name: &str, from: &str) {
        let script = "document.getElementById(arguments[0]).scrollIntoView()";
        self.browser.run(script, &[from]).await;
        let picture = self.browser.picture().await;
        assert!(picture.len() < LARGEST_PICTURE, "{} bytes", picture.len());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pictures");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.png")), picture).unwrap();
    }
}
