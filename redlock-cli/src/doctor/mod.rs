//! `redlock doctor`: what is wrong with a Redis for locks, and how to fix it.
//!
//! A check is a function of one master that returns its findings. If the user may not ask a question, that
//! is not a finding of a check, but a note that the check was left out.

mod clock;
mod facts;
mod fair;
mod keys;
mod memory;
mod persistence;
mod places;
mod replicas;
mod rights;
mod version;

use std::io::{IsTerminal, stdout};
use std::time::Instant;

use clap::{Args, ValueEnum};
use redis::RedisError;
use redlock_rt::Shutdown;
use serde::Serialize;

use self::facts::Facts;
use crate::exit::{Code, Failure};
use crate::nodes::{Node, masters};
use crate::output::{Output, plain};
use crate::server::Server;

/// Looks for what is wrong with a Redis for locks
///
/// Changes nothing. Exits with 1 if there is an error, also with a warning if --strict, and with 69 or 77 if
/// Redis does not let it in.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The kinds in use, for the rights that they need [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KINDS")]
    kinds: Vec<Kind>,
    /// The user whose rights are looked at [default: the one who asks]
    #[arg(long, value_name = "NAME")]
    acl_user: Option<String>,
    /// How many keys to look at on each master, at most
    #[arg(long, value_name = "N", default_value = "10000")]
    scan: usize,
    /// A warning is an error, too
    #[arg(long)]
    strict: bool,
}

/// A kind, as far as it has rights of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Rlock,
    Fair,
    ReadWrite,
    Fenced,
    Once,
    Semaphore,
    Latch,
    Barrier,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Ok,
    /// Good to know, or a check that was left out.
    Note,
    /// Locks can be lost, or have to wait, when something else goes wrong.
    Warning,
    /// Locks are lost, or cannot be acquired.
    Error,
}

impl Severity {
    /// The word, and its colour at a terminal.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Ok => ("ok", "32"),
            Self::Note => ("note", "36"),
            Self::Warning => ("warning", "33"),
            Self::Error => ("error", "31"),
        }
    }
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    severity: Severity,
    server: String,
    message: String,
    remedy: Option<String>,
}

/// The result of one check of one server.
#[derive(Debug)]
struct Said {
    severity: Severity,
    message: String,
    remedy: Option<String>,
}

fn ok(message: impl Into<String>) -> Said {
    said(Severity::Ok, message, None)
}

fn note(message: impl Into<String>) -> Said {
    said(Severity::Note, message, None)
}

fn warning(message: impl Into<String>, remedy: &str) -> Said {
    said(Severity::Warning, message, Some(remedy))
}

fn error(message: impl Into<String>, remedy: &str) -> Said {
    said(Severity::Error, message, Some(remedy))
}

fn said(severity: Severity, message: impl Into<String>, remedy: Option<&str>) -> Said {
    Said {
        severity,
        message: message.into(),
        remedy: remedy.map(str::to_owned),
    }
}

pub(crate) async fn perform(
    doctor: Doctor,
    server: &Server,
    output: Output,
) -> Result<Code, Failure> {
    let mut report = Report {
        output,
        worst: Severity::Ok,
    };
    let nodes = match reach(server, &mut report).await {
        Ok(nodes) => nodes,
        Err(failure) => {
            let remedy = "start it, or change the URL, the password or the rights";
            report.add(
                "reachable",
                &server.place(),
                vec![error(failure.message, remedy)],
            )?;
            return Ok(failure.code);
        }
    };
    for node in &nodes {
        examine(&doctor, server, node, &mut report).await?;
    }
    let limit = match doctor.strict {
        true => Severity::Warning,
        false => Severity::Error,
    };
    Ok(if report.worst >= limit {
        Code::NO
    } else {
        Code::DONE
    })
}

/// Connects as the services do, which detects unsuitable servers, and then for questions.
async fn reach(server: &Server, report: &mut Report) -> Result<Vec<Node>, Failure> {
    let client = server.client().await?;
    client.shutdown(Shutdown::ReleaseAll).await?;
    let nodes = masters(server).await?;
    for node in &nodes {
        let asked = Instant::now();
        let _: String = node.ask(&["PING"]).await?;
        let took = asked.elapsed();
        let said = match took.as_millis() {
            0..100 => ok(format!("answers in {took:.1?}")),
            _ => warning(
                format!("took {took:.1?} for an answer"),
                "look for slow commands (SLOWLOG) and for a slow network",
            ),
        };
        report.add("reachable", &node.address, vec![said])?;
    }
    Ok(nodes)
}

async fn examine(
    doctor: &Doctor,
    server: &Server,
    node: &Node,
    report: &mut Report,
) -> Result<(), Failure> {
    let facts = Facts::of(node).await;
    let address = &node.address;
    let may_restore = rights::may_restore(doctor, node).await;
    report.add("version", address, version::check(&facts, may_restore))?;
    report.add("persistence", address, persistence::check(&facts))?;
    report.add("eviction", address, memory::check(&facts))?;
    report.add("scripts", address, memory::scripts(&facts))?;
    report.add("replicas", address, replicas::check(&facts))?;
    report.add("clock", address, clock::check(node).await)?;
    report.add(
        "rights",
        address,
        rights::check(doctor, server, &facts, node).await,
    )?;
    let keys = keys::scan(node, doctor.scan).await;
    report.add(
        "keys",
        address,
        or_left_out(keys::check(node, server, &keys).await),
    )?;
    report.add(
        "queues",
        address,
        or_left_out(fair::queues(node, &keys).await),
    )?;
    report.add(
        "permits",
        address,
        or_left_out(fair::permits(node, &keys).await),
    )?;
    Ok(())
}

/// A check that Redis did not allow is a note.
fn or_left_out(said: Result<Vec<Said>, RedisError>) -> Vec<Said> {
    said.unwrap_or_else(|error| vec![note(format!("not known: {error}"))])
}

struct Report {
    output: Output,
    worst: Severity,
}

impl Report {
    fn add(&mut self, check: &'static str, address: &str, said: Vec<Said>) -> Result<(), Failure> {
        for said in said {
            self.worst = self.worst.max(said.severity);
            let finding = Finding {
                check,
                severity: said.severity,
                server: address.to_owned(),
                message: said.message,
                remedy: said.remedy,
            };
            self.output.say_lines(&finding, text(&finding))?;
        }
        Ok(())
    }
}

fn text(finding: &Finding) -> String {
    let (word, colour) = finding.severity.words();
    let word = match stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        true => format!("\x1b[{colour}m{word:7}\x1b[0m"),
        false => format!("{word:7}"),
    };
    let [server, message] = [&finding.server, &finding.message].map(|text| plain(text));
    let check = finding.check;
    let remedy = finding.remedy.iter();
    let remedy: String = remedy
        .map(|remedy| format!("\n        mend it: {remedy}"))
        .collect();
    format!("{word} {check:11} {server}  {message}{remedy}")
}
