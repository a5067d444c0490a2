//! Facts that a server reports about itself.

use std::collections::HashMap;
use std::str::FromStr;

use crate::nodes::Node;

/// INFO and CONFIG, as far as the user may ask.
#[derive(Debug, Default)]
pub(super) struct Facts {
    info: HashMap<String, String>,
    config: HashMap<String, String>,
}

const CONFIG: [&str; 3] = ["appendfsync", "maxmemory-policy", "min-replicas-to-write"];

impl Facts {
    pub(super) async fn of(node: &Node) -> Self {
        let text: String = node.ask(&["INFO", "everything"]).await.unwrap_or_default();
        let mut config = HashMap::new();
        for name in CONFIG {
            let found: Result<HashMap<String, String>, _> =
                node.ask(&["CONFIG", "GET", name]).await;
            config.extend(found.unwrap_or_default());
        }
        Self {
            info: Self::read(&text),
            config,
        }
    }

    fn read(info: &str) -> HashMap<String, String> {
        let lines = info.lines().filter_map(|line| line.split_once(':'));
        lines
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect()
    }

    #[cfg(test)]
    pub(super) fn with_info(info: &str) -> Self {
        Self {
            info: Self::read(info),
            config: HashMap::new(),
        }
    }

    pub(super) fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    pub(super) fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.info(name)?.parse().ok()
    }

    /// The lines whose name begins with `start`.
    pub(super) fn lines(&self, start: &str) -> impl Iterator<Item = (&str, &str)> {
        let lines = self
            .info
            .iter()
            .filter(move |(name, _)| name.starts_with(start));
        lines.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A setting; `None` if the user may not ask, or the server has none of that name.
    pub(super) fn config(&self, name: &str) -> Option<&str> {
        self.config.get(name).map(String::as_str)
    }
}
