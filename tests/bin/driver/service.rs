//! The commands of leaderships, and of what is to be done once.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, UNIX_EPOCH},
};

use redlock_rt::{Fire, FireGuard, Leadership, Unlocked};
use tests::lock;
use tokio::time::timeout;

use super::{
    answer::{Failure, Outcome},
    clients::Connected,
    command::span,
    locks::or_nil,
};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServiceCommand {
    name: String,
    owner: String,
    of: Of,
}

#[derive(Debug, PartialEq, Eq)]
enum Of {
    Campaign(Option<Duration>),
    Resign,
    Who,
    Start {
        fire: Duration,
        wait: Option<Duration>,
        attempts: Option<u32>,
    },
    /// Whether it is done, or left to others.
    End {
        fire: Duration,
        done: bool,
    },
}

/// The leaderships of a client by name and owner, and the fires that it runs by their time as well.
#[derive(Debug, Default)]
pub(crate) struct Services(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    leads: HashMap<(String, String), Leadership>,
    runs: HashMap<(String, String, Duration), FireGuard>,
}

impl Services {
    /// Drops all guards, which queues their releases.
    pub(crate) fn drop_all(&self) {
        *lock(&self.0) = Kept::default();
    }
}

impl ServiceCommand {
    /// `None` for another command.
    pub(crate) fn parse(command: &str, args: &[&str]) -> Option<Result<Self, Failure>> {
        let form = match command {
            "leader.campaign" => "NAME OWNER [waitMs]",
            "leader.resign" => "NAME OWNER",
            "leader.who" => "NAME",
            "once.start" => "NAME FIRE_MS OWNER [waitMs [attempts]]",
            "once.done" | "once.leave" => "NAME FIRE_MS OWNER",
            _ => return None,
        };
        let parsed = Self::parse_args(command, args);
        Some(parsed.ok_or_else(|| Failure::usage(format!("{command} {form}"))))
    }

    fn parse_args(command: &str, args: &[&str]) -> Option<Self> {
        let millis = |word: &str| span(word).ok();
        let (name, rest) = args.split_first()?;
        let (owner, of) = match (command, rest) {
            ("leader.campaign", [owner]) => (owner, Of::Campaign(None)),
            ("leader.campaign", [owner, wait]) => (owner, Of::Campaign(Some(millis(wait)?))),
            ("leader.resign", [owner]) => (owner, Of::Resign),
            ("leader.who", []) => (&"", Of::Who),
            ("once.start", [fire, owner, rest @ ..]) if rest.len() <= 2 => {
                let start = Of::Start {
                    fire: millis(fire)?,
                    wait: rest
                        .first()
                        .map(|wait| millis(wait).ok_or(()))
                        .transpose()
                        .ok()?,
                    attempts: rest.get(1).map(|most| most.parse()).transpose().ok()?,
                };
                (owner, start)
            }
            ("once.done" | "once.leave", [fire, owner]) => {
                let (fire, done) = (millis(fire)?, command == "once.done");
                (owner, Of::End { fire, done })
            }
            _ => return None,
        };
        Some(Self {
            name: (*name).to_owned(),
            owner: (*owner).to_owned(),
            of,
        })
    }

    pub(crate) async fn run(self, client: &Connected, services: &Services) -> Outcome {
        let Self { name, owner, of } = self;
        let client = &client.client;
        match of {
            Of::Campaign(wait) => {
                let election = client.leader_election(&name);
                let won = timeout(wait.unwrap_or(Duration::MAX), election.campaign()).await;
                let Ok(won) = won else {
                    return Ok(or_nil(None::<u64>));
                };
                let won = won?;
                let term = won.term();
                lock(&services.0).leads.insert((name, owner), won);
                Ok(term.to_string())
            }
            Of::Resign => {
                let led = lock(&services.0).leads.remove(&(name, owner));
                ended(led.ok_or_else(has_none)?.resign().await?)
            }
            Of::Who => {
                let leader = client.leader_election(&name).leader().await?;
                let told = leader.map(|leader| format!("{} {}", leader.term, leader.hold));
                Ok(or_nil(told))
            }
            Of::Start {
                fire,
                wait,
                attempts,
            } => {
                let once = client.once(&name, UNIX_EPOCH + fire).attempts(attempts);
                Ok(match once.wait(wait).start().await? {
                    Fire::Run(guard) => {
                        let token = guard.token();
                        lock(&services.0).runs.insert((name, owner, fire), guard);
                        format!("run {token}")
                    }
                    Fire::Running(by) => format!("running {by}"),
                    Fire::Done(at) => {
                        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
                        format!("done {}", at.as_millis())
                    }
                    _ => "failed".to_owned(),
                })
            }
            Of::End { fire, done } => {
                let ran = lock(&services.0).runs.remove(&(name, owner, fire));
                let ran = ran.ok_or_else(has_none)?;
                if !done {
                    return ended(ran.unlock().await?);
                }
                ran.done().await?;
                Ok("ok".to_owned())
            }
        }
    }
}

fn ended(how: Unlocked) -> Outcome {
    match how {
        Unlocked::Released => Ok("true".to_owned()),
        _ => Err(Failure::lost("it had expired or was lost before")),
    }
}

fn has_none() -> Failure {
    Failure::not_owner("this owner has no guard of it")
}
