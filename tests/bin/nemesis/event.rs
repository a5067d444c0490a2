//! What a worker writes down: one line for each moment, by the clock that all processes of the machine share.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
    process,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tests::monotonic;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Act {
    /// An acquisition.
    Lock,
    /// The guard said at this time that it is valid.
    Valid,
    /// The guard said for the first time that it is not.
    Lost,
    /// The body ends, and the guard with it.
    End,
    /// The counter is read and written.
    Count,
    /// A wait for others at a barrier or a latch.
    Meet,
}

/// As Jepsen has it: `Info` is an operation whose outcome is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    Invoke,
    Ok,
    Fail,
    Info,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) at: u64,
    pub(crate) process: u32,
    pub(crate) task: u32,
    /// The kind of lock, or `count:` and the kind around the counter.
    pub(crate) subject: String,
    pub(crate) act: Act,
    pub(crate) stage: Stage,
    /// The token of an acquisition; the value of a counter; a thousand times the generation of a barrier, and the
    /// index; the round of a latch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) value: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) error: Option<String>,
}

pub(crate) fn now() -> u64 {
    nanos(monotonic())
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("some centuries")
}

/// The events of a task.
#[derive(Clone)]
pub(crate) struct Journal<'a> {
    pub(crate) file: &'a File,
    pub(crate) task: u32,
    pub(crate) subject: String,
}

impl Journal<'_> {
    pub(crate) fn note(&self, act: Act, stage: Stage) {
        self.note_at(now(), act, stage, None, None);
    }

    pub(crate) fn note_at(
        &self,
        at: u64,
        act: Act,
        stage: Stage,
        value: Option<u64>,
        error: Option<String>,
    ) {
        let event = Event {
            at,
            process: process::id(),
            task: self.task,
            subject: self.subject.clone(),
            act,
            stage,
            value,
            error,
        };
        let mut line = serde_json::to_string(&event).expect("an event is JSON");
        line.push('\n');
        // A single write with O_APPEND, so that lines never mix, and a killed process loses none.
        let mut file = self.file;
        file.write_all(line.as_bytes()).expect("the log is written");
    }
}

pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The events of all processes, in order of time.
pub(crate) fn read(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    for path in paths {
        let text = fs::read_to_string(path)?;
        // A process may have been killed in the middle of its last line.
        events.extend(
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok()),
        );
    }
    events.sort_by_key(|event: &Event| event.at);
    Ok(events)
}

/// The events as Jepsen's histories are written, for Knossos and others.
pub(crate) fn edn(events: &[Event], out: &mut impl Write) -> io::Result<()> {
    for event in events {
        write!(
            out,
            "{{:time {} :process \"{}.{}\" :subject \"{}\" :f :{} :type :{}",
            event.at,
            event.process,
            event.task,
            event.subject,
            format!("{:?}", event.act).to_lowercase(),
            format!("{:?}", event.stage).to_lowercase(),
        )?;
        if let Some(value) = event.value {
            write!(out, " :value {value}")?;
        }
        if let Some(error) = &event.error {
            write!(out, " :error {error:?}")?;
        }
        writeln!(out, "}}")?;
    }
    Ok(())
}
