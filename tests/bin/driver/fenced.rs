//! The commands of fencing tokens.

use super::{
    answer::{Failure, Outcome},
    clients::Connected,
    locks::or_nil,
};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FencedCommand {
    /// The last token of a lock.
    Token { name: String },
    /// A write under a token.
    Set {
        key: String,
        value: String,
        token: u64,
    },
}

impl FencedCommand {
    /// `None` for another command.
    pub(crate) fn parse(command: &str, args: &[&str]) -> Option<Result<Self, Failure>> {
        let parsed = match (command, args) {
            ("fenced.token", [name]) => Ok(Self::Token {
                name: (*name).to_owned(),
            }),
            ("fenced.token", _) => Err(Failure::usage("fenced.token NAME")),
            ("fenced.set", [key, value, token]) => match token.parse() {
                Ok(token) => Ok(Self::Set {
                    key: (*key).to_owned(),
                    value: (*value).to_owned(),
                    token,
                }),
                Err(_) => Err(Failure::usage(format!("not a token: {token}"))),
            },
            ("fenced.set", _) => Err(Failure::usage("fenced.set KEY VALUE TOKEN")),
            _ => return None,
        };
        Some(parsed)
    }

    pub(crate) async fn run(self, client: &Connected) -> Outcome {
        match self {
            Self::Token { name } => {
                let lock = client.client.fenced_lock(name);
                Ok(or_nil(lock.token().await?))
            }
            Self::Set { key, value, token } => {
                client.client.fenced_value(key).set(value, token).await?;
                Ok("ok".to_owned())
            }
        }
    }
}
