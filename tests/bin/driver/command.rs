//! The commands and their syntax: `ID [@CLIENT] COMMAND args`.

use std::time::Duration;

use redlock_rt::Ticket;

use super::{
    answer::Failure,
    barrier::BarrierCommand,
    clients::Target,
    fenced::FencedCommand,
    kinds::{LockId, LockKind},
    latch::LatchCommand,
    semaphores::SemaphoreCommand,
    service::ServiceCommand,
};

pub(crate) const DEFAULT_CLIENT: &str = "default";

/// One line of stdin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) id: String,
    pub(crate) client: String,
    pub(crate) command: Result<Command, Failure>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Connect(Target),
    Uuid,
    Stats,
    Publish {
        channel: String,
        message: String,
    },
    Close,
    Shutdown,
    Sleep(Duration),
    Abort,
    Exit,
    Cancel {
        id: String,
    },
    Lock {
        lock: LockId,
        of: LockCommand,
    },
    Fenced(FencedCommand),
    Latch(LatchCommand),
    Barrier(BarrierCommand),
    Service(ServiceCommand),
    Semaphore(SemaphoreCommand),
    Owned {
        lock: LockId,
        owner: String,
        of: OwnedCommand,
    },
}

/// The commands about a lock that need no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockCommand {
    ForceUnlock,
    IsLocked,
    Ttl,
    Holder,
    Len,
}

/// The commands of an owner about a lock or its hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedCommand {
    Lock {
        lease: Option<Duration>,
    },
    TryLock {
        wait: Duration,
        lease: Option<Duration>,
    },
    Unlock,
    /// Into the other mode of a read-write lock.
    Convert,
    /// The hold goes to whoever adopts it.
    Ticket,
    Adopt(Ticket),
    HeldBy,
    Held,
    Lost {
        wait: Duration,
    },
    HoldCount,
    Owner,
    Position,
}

impl OwnedCommand {
    /// Whether the command answers at once, also while another command of the owner is pending.
    pub(crate) fn is_immediate(&self) -> bool {
        matches!(
            self,
            Self::Held | Self::Lost { .. } | Self::HoldCount | Self::Owner | Self::Position
        )
    }
}

impl Line {
    /// Parses a line, `None` if it is blank.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().peekable();
        let id = words.next()?.to_owned();
        let client = words.next_if(|word| word.starts_with('@'));
        let client = client.map_or(DEFAULT_CLIENT, |word| &word[1..]).to_owned();
        let command = match words.next() {
            _ if client.is_empty() => Err(Failure::usage("a client's name is missing after @")),
            Some(name) => parse_command(name, &words.collect::<Vec<_>>()),
            None => Err(Failure::usage("a command is missing")),
        };
        Some(Self {
            id,
            client,
            command,
        })
    }
}

fn parse_command(command: &str, args: &[&str]) -> Result<Command, Failure> {
    let usage = |form: &str| Failure::usage(format!("{command} {form}"));
    let word = |index: usize| args[index].to_owned();
    let no_args = |parsed: Command| {
        if args.is_empty() {
            Ok(parsed)
        } else {
            Err(usage("takes no arguments"))
        }
    };
    match command {
        "connect" => connect(args),
        "uuid" => no_args(Command::Uuid),
        "stats" => no_args(Command::Stats),
        "close" => no_args(Command::Close),
        "shutdown" => no_args(Command::Shutdown),
        "abort" => no_args(Command::Abort),
        "exit" => no_args(Command::Exit),
        "publish" if args.len() >= 2 => Ok(Command::Publish {
            channel: word(0),
            message: args[1..].join(" "),
        }),
        "publish" => Err(usage("CHANNEL MESSAGE")),
        "cancel" if args.len() == 1 => Ok(Command::Cancel { id: word(0) }),
        "cancel" => Err(usage("ID")),
        "sleep" if args.len() == 1 => Ok(Command::Sleep(span(args[0])?)),
        "sleep" => Err(usage("MS")),
        _ => {
            if let Some(parsed) = FencedCommand::parse(command, args) {
                return parsed.map(Command::Fenced);
            }
            if let Some(parsed) = LatchCommand::parse(command, args) {
                return parsed.map(Command::Latch);
            }
            if let Some(parsed) = BarrierCommand::parse(command, args) {
                return parsed.map(Command::Barrier);
            }
            if let Some(parsed) = ServiceCommand::parse(command, args) {
                return parsed.map(Command::Service);
            }
            match SemaphoreCommand::parse(command, args) {
                Some(parsed) => parsed.map(Command::Semaphore),
                None => of_lock(command, args),
            }
        }
    }
}

/// `[KIND.]COMMAND NAME ...`.
fn of_lock(command: &str, args: &[&str]) -> Result<Command, Failure> {
    let unknown = || Failure::usage(format!("unknown command: {command}"));
    let converts = match command {
        "rw.downgrade" => Some(LockKind::Write),
        "rw.tryupgrade" => Some(LockKind::Read),
        _ => None,
    };
    if let Some(from) = converts {
        return match args {
            [name, owner] => Ok(Command::Owned {
                lock: LockId::new(from, name),
                owner: (*owner).to_owned(),
                of: OwnedCommand::Convert,
            }),
            _ => Err(Failure::usage(format!("{command} NAME OWNER"))),
        };
    }
    let (kind, verb) = match command.rsplit_once('.') {
        Some((kind, verb)) => (LockKind::named(kind).ok_or_else(unknown)?, verb),
        None => (LockKind::Reentrant, command),
    };
    let of = match verb {
        "forceunlock" => LockCommand::ForceUnlock,
        "islocked" => LockCommand::IsLocked,
        "ttl" => LockCommand::Ttl,
        "holder" => LockCommand::Holder,
        "len" if kind == LockKind::Fair => LockCommand::Len,
        "position" if kind == LockKind::Fair => return owned(command, kind, verb, args),
        "lock" | "trylock" | "unlock" | "heldby" | "held" | "lost" | "holdcount" | "owner"
        | "ticket" | "adopt" => {
            return owned(command, kind, verb, args);
        }
        _ => return Err(unknown()),
    };
    match args {
        [name] => Ok(Command::Lock {
            lock: LockId::new(kind, name),
            of,
        }),
        _ => Err(Failure::usage(format!("{command} NAME"))),
    }
}

fn connect(args: &[&str]) -> Result<Command, Failure> {
    let usage = || Failure::usage("connect URL [watchdogMs] [key=value ...]");
    let (url, mut rest) = args.split_first().ok_or_else(usage)?;
    let mut watchdog = None;
    if let Some((first, others)) = rest.split_first()
        && !first.contains('=')
    {
        watchdog = lease(first)?;
        rest = others;
    }
    let pair = |word: &&str| {
        let (key, value) = word.split_once('=').ok_or_else(usage)?;
        Ok((key.to_owned(), value.to_owned()))
    };
    let options = rest.iter().map(pair).collect::<Result<_, Failure>>()?;
    Ok(Command::Connect(Target {
        url: (*url).to_owned(),
        watchdog,
        options,
    }))
}

fn owned(command: &str, kind: LockKind, verb: &str, args: &[&str]) -> Result<Command, Failure> {
    let form = match verb {
        "lock" => "NAME OWNER [leaseMs]",
        "trylock" => "NAME OWNER [waitMs [leaseMs]]",
        "lost" => "NAME OWNER waitMs",
        "adopt" => "NAME OWNER TICKET",
        _ => "NAME OWNER",
    };
    let usage = || Failure::usage(format!("{command} {form}"));
    let [name, owner, rest @ ..] = args else {
        return Err(usage());
    };
    let of = match (verb, rest) {
        ("lock", []) => OwnedCommand::Lock { lease: None },
        ("lock", [ms]) => OwnedCommand::Lock { lease: lease(ms)? },
        ("trylock", []) => OwnedCommand::TryLock {
            wait: Duration::ZERO,
            lease: None,
        },
        ("trylock", [wait]) => OwnedCommand::TryLock {
            wait: span(wait)?,
            lease: None,
        },
        ("trylock", [wait, ms]) => OwnedCommand::TryLock {
            wait: span(wait)?,
            lease: lease(ms)?,
        },
        ("unlock", []) => OwnedCommand::Unlock,
        ("heldby", []) => OwnedCommand::HeldBy,
        ("held", []) => OwnedCommand::Held,
        ("lost", [wait]) => OwnedCommand::Lost { wait: span(wait)? },
        ("holdcount", []) => OwnedCommand::HoldCount,
        ("owner", []) => OwnedCommand::Owner,
        ("position", []) => OwnedCommand::Position,
        ("ticket", []) => OwnedCommand::Ticket,
        ("adopt", [ticket]) => OwnedCommand::Adopt(ticket.parse()?),
        _ => return Err(usage()),
    };
    Ok(Command::Owned {
        lock: LockId::new(kind, name),
        owner: (*owner).to_owned(),
        of,
    })
}

/// A span of time; none if it is negative.
pub(super) fn span(ms: &str) -> Result<Duration, Failure> {
    Ok(lease(ms)?.unwrap_or_default())
}

/// A lease: `None`, that is the watchdog's, if it is not above 0.
fn lease(ms: &str) -> Result<Option<Duration>, Failure> {
    let ms: i128 = ms
        .parse()
        .map_err(|_| Failure::usage(format!("not a number of ms: {ms}")))?;
    // The library refuses values that are too large.
    let ms = u64::try_from(ms.max(0)).unwrap_or(u64::MAX);
    Ok((ms > 0).then(|| Duration::from_millis(ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, Failure> {
        Line::parse(line).unwrap().command
    }

    fn owned(of: OwnedCommand) -> Result<Command, Failure> {
        Ok(Command::Owned {
            lock: LockId::new(LockKind::Reentrant, "n"),
            owner: "o".to_owned(),
            of,
        })
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_line_has_an_id_and_perhaps_a_client() {
        let line = Line::parse("  7 uuid ").unwrap();
        assert_eq!(
            (&*line.id, &*line.client, line.command),
            ("7", "default", Ok(Command::Uuid))
        );
        let line = Line::parse("x @b stats").unwrap();
        assert_eq!(
            (&*line.id, &*line.client, line.command),
            ("x", "b", Ok(Command::Stats))
        );
        assert_eq!(Line::parse(" \t"), None);
    }

    #[test]
    fn leases_and_waits() {
        let watchdog = OwnedCommand::Lock { lease: None };
        for line in ["1 lock n o", "1 lock n o 0", "1 lock n o -1"] {
            assert_eq!(parse(line), owned(watchdog.clone()));
        }
        assert_eq!(
            parse("1 lock n o 5"),
            owned(OwnedCommand::Lock { lease: Some(ms(5)) })
        );
        let with = |wait, lease| owned(OwnedCommand::TryLock { wait, lease });
        assert_eq!(parse("1 trylock n o"), with(ms(0), None));
        assert_eq!(parse("1 trylock n o 100"), with(ms(100), None));
        assert_eq!(parse("1 trylock n o -5 200"), with(ms(0), Some(ms(200))));
        assert_eq!(
            parse("1 lost n o 30"),
            owned(OwnedCommand::Lost { wait: ms(30) })
        );
        let huge = parse("1 lock n o 99999999999999999999999");
        assert_eq!(
            huge,
            owned(OwnedCommand::Lock {
                lease: Some(ms(u64::MAX))
            })
        );
    }

    #[test]
    fn connect_takes_a_watchdog_and_options() {
        let connect = |watchdog, options: &[(&str, &str)]| {
            let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            let options = options.iter().map(owned).collect();
            let url = "redis://h:1/2".to_owned();
            Ok(Command::Connect(Target {
                url,
                watchdog,
                options,
            }))
        };
        assert_eq!(parse("1 connect redis://h:1/2"), connect(None, &[]));
        assert_eq!(
            parse("1 connect redis://h:1/2 300"),
            connect(Some(ms(300)), &[])
        );
        let all = parse("1 connect redis://h:1/2 300 namespace=a linger=0");
        assert_eq!(
            all,
            connect(Some(ms(300)), &[("namespace", "a"), ("linger", "0")])
        );
        let options = parse("1 connect redis://h:1/2 namespace=a");
        assert_eq!(options, connect(None, &[("namespace", "a")]));
    }

    #[test]
    fn a_message_may_have_several_words() {
        let (channel, message) = ("c".to_owned(), "a b".to_owned());
        assert_eq!(
            parse("1 publish c a  b"),
            Ok(Command::Publish { channel, message })
        );
    }

    #[test]
    fn only_questions_to_the_guard_are_immediate() {
        let wait = ms(1);
        for of in [
            OwnedCommand::Held,
            OwnedCommand::HoldCount,
            OwnedCommand::Owner,
            OwnedCommand::Lost { wait },
        ] {
            assert!(of.is_immediate());
        }
        let lock = OwnedCommand::Lock { lease: None };
        let trylock = OwnedCommand::TryLock { wait, lease: None };
        assert!(
            ![lock, trylock, OwnedCommand::Unlock, OwnedCommand::HeldBy]
                .iter()
                .any(|of| of.is_immediate())
        );
    }

    #[test]
    fn a_malformed_command_is_a_usage_error() {
        for line in [
            "1",
            "1 @c",
            "1 @ uuid",
            "1 dance",
            "1 cluster.lock n o",
            "1 .lock n o",
            "1 fenced.dance n o",
            "1 fenced.token",
            "1 fenced.set k v t",
            "1 token n",
            "1 latch.set n",
            "1 latch.set n x",
            "1 latch.down",
            "1 latch.await n soon",
            "1 latch.dance n",
            "1 barrier.await n",
            "1 barrier.await n x",
            "1 barrier.await n 2 soon",
            "1 barrier.reset n 2 3",
            "1 leader.campaign n",
            "1 leader.campaign n o soon",
            "1 leader.who n o",
            "1 once.start n soon o",
            "1 once.start n 1 o 2 x",
            "1 once.done n 1",
            "1 uuid x",
            "1 lock n",
            "1 lock n o x",
            "1 lock n o 1 2",
            "1 trylock n o 1 2 3",
            "1 unlock n",
            "1 lost n o",
            "1 ticket n",
            "1 adopt n o",
            "1 ttl",
            "1 ttl a b",
            "1 connect",
            "1 connect u 5 6",
            "1 sleep",
            "1 sleep soon",
            "1 cancel",
            "1 sem.acquire n",
            "1 sem.dance n 1",
            "1 sem.release n x",
            "1 psem.acquire n",
            "1 psem.release n",
            "1 publish c",
        ] {
            assert_eq!(parse(line).unwrap_err().kind, "usage", "{line}");
        }
    }
}
