//! Who was inside the critical section and when, written by several processes, and its checker.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
    process,
    time::Duration,
};

/// The append-only log of turns; every process opens the same path.
///
/// A line is `PROCESS OWNER ENTER LEAVE`, times in nanoseconds of [`monotonic`](crate::monotonic).
#[derive(Debug)]
pub struct History {
    file: File,
}

impl History {
    /// Opens the log, creating it if it is not there.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }

    /// Adds one turn of `owner` (a word) of this process.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn turn(&self, owner: &str, enter: Duration, leave: Duration) -> io::Result<()> {
        assert!(
            !owner.contains(char::is_whitespace),
            "owner is not one word: {owner:?}"
        );
        let (process, enter, leave) = (process::id(), enter.as_nanos(), leave.as_nanos());
        let line = format!("{process} {owner} {enter} {leave}\n");
        // A single write with O_APPEND, so that lines of several processes never mix.
        let written = (&self.file).write(line.as_bytes())?;
        if written == line.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }
}

/// One stay in the critical section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The process that the owner belongs to.
    pub process: String,
    /// The owner, a word.
    pub owner: String,
    /// When it had entered, on the machine's monotonic clock.
    pub enter: Duration,
    /// When it was about to leave.
    pub leave: Duration,
}

/// The turns of a log, in order of entry.
#[derive(Clone, Debug, Default)]
pub struct Turns(Vec<Turn>);

impl Turns {
    /// Reads the log of all processes.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        Ok(Self::new(text.lines().map(|line| {
            parse(line).unwrap_or_else(|| panic!("malformed line in the history: {line:?}"))
        })))
    }

    /// The turns given, in order of entry.
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        let mut turns: Vec<_> = turns.into_iter().collect();
        turns.sort_by_key(|turn| (turn.enter, turn.leave));
        Self(turns)
    }

    /// All turns, in order of entry.
    pub fn all(&self) -> &[Turn] {
        &self.0
    }

    /// Checks that nobody was inside together with another.
    ///
    /// # Errors
    /// The first two turns that overlap.
    pub fn check_exclusive(&self) -> Result<(), Box<Overlap>> {
        // In order of entry, neighbours that do not overlap mean that nobody does.
        for pair in self.0.windows(2) {
            if pair[1].enter < pair[0].leave {
                let (first, second) = (pair[0].clone(), pair[1].clone());
                return Err(Box::new(Overlap { first, second }));
            }
        }
        Ok(())
    }

    /// How many turns each owner of each process had, by `(process, owner)`.
    pub fn per_owner(&self) -> BTreeMap<(String, String), usize> {
        self.count_by(|turn| (turn.process.clone(), turn.owner.clone()))
    }

    /// How many turns each process had.
    pub fn per_process(&self) -> BTreeMap<String, usize> {
        self.count_by(|turn| turn.process.clone())
    }

    fn count_by<K: Ord>(&self, key: impl Fn(&Turn) -> K) -> BTreeMap<K, usize> {
        let mut counts = BTreeMap::new();
        for turn in &self.0 {
            *counts.entry(key(turn)).or_insert(0) += 1;
        }
        counts
    }
}

/// Two turns that overlap: two holders at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The one that entered first.
    pub first: Turn,
    /// The one that entered before the first had left.
    pub second: Turn,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let together = self
            .first
            .leave
            .min(self.second.leave)
            .saturating_sub(self.second.enter);
        write!(
            f,
            "two holders for {together:?}: {:?} and {:?}",
            self.first, self.second
        )
    }
}

impl std::error::Error for Overlap {}

fn parse(line: &str) -> Option<Turn> {
    let words: Vec<_> = line.split(' ').collect();
    let [process, owner, enter, leave] = words[..] else {
        return None;
    };
    let nanos = |word: &str| word.parse().ok().map(Duration::from_nanos);
    let (enter, leave) = (nanos(enter)?, nanos(leave)?);
    (enter <= leave).then(|| Turn {
        process: process.to_owned(),
        owner: owner.to_owned(),
        enter,
        leave,
    })
}
