//! What a server says of itself when a connection opens.

use redis::Value;

/// The lines of `INFO` that are of interest; nothing where an ACL forbids to ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Info {
    /// Names the server process; a restarted one has another.
    pub(super) run_id: Option<String>,
}

impl Info {
    pub(super) fn of(reply: &Value) -> Self {
        match reply {
            Value::BulkString(bytes) => Self::parse(&String::from_utf8_lossy(bytes)),
            Value::VerbatimString { text, .. } => Self::parse(text),
            _ => Self::default(),
        }
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = lines.find(|(key, _)| *key == name)?;
            Some(value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        Self {
            run_id: field("run_id"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_info_are_found() {
        let text = "# Server\r\nredis_version:7.0.15\r\nrun_id:0f1e\r\ntcp_port:1\r\n";
        let said = |text: &str| Info::of(&Value::BulkString(text.into()));
        assert_eq!(said(text).run_id.as_deref(), Some("0f1e"));
        assert_eq!(said("run_id:\r\n"), Info::default());
        assert_eq!(Info::of(&Value::Okay), Info::default());
    }
}
