//! Lua scripts and calls of them.

use std::sync::LazyLock;
use std::time::Duration;

use smallvec::SmallVec;

use super::fast_path::FastPath;
use super::keys::Channel;
use crate::meter::{Sent, Spanned};

/// A script of `lua/`, known to Redis by the SHA1 of its text.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) sha: LazyLock<String, fn() -> String>,
    pub(crate) sent: Sent,
}

impl Script {
    pub(crate) const fn new(name: &'static str, text: &'static str, sha: fn() -> String) -> Self {
        Self {
            name,
            text,
            sha: LazyLock::new(sha),
            sent: Sent::never(),
        }
    }
}

/// Declares a script of `lua/` as a static.
macro_rules! script {
    // The texts of other files come before its own.
    ($ident:ident = $first:literal $(+ $more:literal)*) => {
        pub(super) static $ident: $crate::wire::Script = {
            const NAMES: &[&str] = &[$first $(, $more)*];
            const TEXT: &str = concat!(
                include_str!(concat!("lua/", $first, ".lua"))
                $(, include_str!(concat!("lua/", $more, ".lua")))*
            );
            let sha = || sha1_smol::Sha1::from(TEXT).digest().to_string();
            $crate::wire::Script::new(NAMES[NAMES.len() - 1], TEXT, sha)
        };
    };
}
pub(super) use script;

/// One call of a script: its keys, then its arguments. One allocation, unless the words are long. It is
/// small, since the futures on its way store it.
#[derive(Debug, Clone)]
pub(crate) struct Call(Box<Words>);

#[derive(Debug, Clone)]
struct Words {
    script: &'static Script,
    keys: usize,
    /// All words concatenated, and where each ends.
    text: Vec<u8>,
    ends: SmallVec<[u32; 6]>,
    /// The index of the word with the channel.
    channel: Option<usize>,
    /// The index of the word with the command that publishes.
    publish: Option<usize>,
    /// The script reads other keys of the slot than `keys`.
    reads_more: bool,
    fast_path: Option<FastPath>,
    span: Spanned,
}

/// The command by which a script publishes on channels in the slot of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Publish {
    /// Outside a cluster, and in one whose servers are older than 7.0 or forbid the other.
    #[default]
    Everywhere,
    /// To the subscribers of the shard only, as Redisson does.
    InShard,
}

impl Call {
    pub(crate) fn new(script: &'static Script) -> Self {
        Self(Box::new(Words {
            script,
            keys: 0,
            text: Vec::with_capacity(128),
            ends: SmallVec::new(),
            channel: None,
            publish: None,
            reads_more: false,
            fast_path: None,
            span: Spanned::default(),
        }))
    }

    /// These plain commands may be sent in place of the script.
    pub(super) fn or(mut self, fast_path: FastPath) -> Self {
        self.0.fast_path = Some(fast_path);
        self
    }

    /// The script also reads keys of the slot whose names it computes.
    pub(super) fn reading_more(mut self) -> Self {
        self.0.reads_more = true;
        self
    }

    /// Whether the script would treat keys that have not arrived yet as deleted, on a server that receives
    /// the keys of the slot one by one. Redis checks only the declared keys of a call.
    pub(crate) fn needs_the_whole_slot(&self) -> bool {
        self.0.reads_more
    }

    pub(crate) fn fast_path(&self) -> Option<FastPath> {
        self.0.fast_path
    }

    /// Adds a key; keys come before arguments.
    pub(crate) fn key(mut self, key: &str) -> Self {
        let words = &mut *self.0;
        debug_assert_eq!(words.keys, words.ends.len(), "keys come before arguments");
        words.keys += 1;
        self.arg(key)
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.0.text.extend_from_slice(arg.as_bytes());
        self.0.word_ends();
        self
    }

    /// Adds the name of a channel.
    pub(super) fn channel_arg(mut self, channel: Channel<'_>) -> Self {
        for part in channel.0 {
            self.0.text.extend_from_slice(part.as_bytes());
        }
        self.0.word_ends();
        self
    }

    pub(crate) fn number(self, number: u64) -> Self {
        self.arg(itoa::Buffer::new().format(number))
    }

    /// Adds the channel on which the script publishes, and the command for it.
    /// [`Reply::split`](super::Reply::split) reads the reply, so no other reply to it is a list of two numbers.
    pub(super) fn announcing(mut self, channel: Channel<'_>) -> Self {
        self.0.channel = Some(self.0.ends.len());
        self.channel_arg(channel).publishing()
    }

    /// Adds the command that publishes. The server to which the call is sent decides which one it is; see
    /// [`words_for`](Self::words_for).
    pub(super) fn publishing(mut self) -> Self {
        self.0.publish = Some(self.0.ends.len());
        self.arg(PUBLISH)
    }

    /// Whether the script publishes.
    pub(super) fn publishes(&self) -> bool {
        self.0.publish.is_some()
    }

    /// The channel on which the script publishes.
    pub(crate) fn channel(&self) -> Option<&str> {
        let channel = self.words().nth(self.0.channel?)?;
        std::str::from_utf8(channel).ok()
    }

    pub(crate) fn script(&self) -> &'static Script {
        self.0.script
    }

    /// The call begins at this server.
    pub(crate) fn traced_at(&mut self, server: &str) {
        self.0.span = Spanned::call(self.0.script.name, server);
    }

    pub(crate) fn span(&mut self) -> &mut Spanned {
        &mut self.0.span
    }

    /// The call is sent, by its script or otherwise.
    pub(crate) fn is_sent(&self) {
        let script = self.0.script;
        script.sent.again(script.name);
    }

    pub(crate) fn key_count(&self) -> usize {
        self.0.keys
    }

    pub(crate) fn word_count(&self) -> usize {
        self.0.ends.len()
    }

    /// Keys, then arguments, for a server where this command publishes.
    pub(crate) fn words_for(&self, publish: Publish) -> impl Iterator<Item = &[u8]> {
        let replaced = self.0.publish.filter(|_| publish == Publish::InShard);
        let words = self.words().enumerate();
        words.map(move |(index, word)| match replaced == Some(index) {
            true => SPUBLISH.as_bytes(),
            false => word,
        })
    }

    /// Keys, then arguments.
    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        let Words { text, ends, .. } = &*self.0;
        let starts = std::iter::once(&0).chain(ends);
        let words = starts.zip(ends);
        words.map(|(start, end)| &text[*start as usize..*end as usize])
    }

    /// Keys, then arguments, as texts.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> Vec<&str> {
        let texts = self.words().map(std::str::from_utf8);
        texts.collect::<Result<_, _>>().unwrap()
    }
}

impl Words {
    fn word_ends(&mut self) {
        // Redis takes no command of 4 GiB.
        let end = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        self.ends.push(end);
    }
}

/// The longest time that PEXPIRE takes, with room for the time of day that it adds.
pub(crate) const LONGEST_SPAN: Duration = Duration::from_millis(i64::MAX as u64 / 4);

/// The commands that publish.
const PUBLISH: &str = "PUBLISH";
const SPUBLISH: &str = "SPUBLISH";

/// Milliseconds for Redis: rounded up, so that a lease on the wire is never shorter than asked.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(super) mod headers {
    use super::Call;

    /// The header of each script lists its keys and arguments; the call must agree.
    #[track_caller]
    pub(in crate::wire) fn assert_agrees(call: &Call) {
        let name = call.script().name;
        assert_eq!(call.key_count(), count(call, "KEYS"), "keys of {name}");
        let args = call.words().count() - call.key_count();
        assert_eq!(args, count(call, "ARGV"), "args of {name}");
        assert_has_preludes(call);
    }

    /// The header also lists the texts that come before its own.
    #[track_caller]
    pub(in crate::wire) fn assert_has_preludes(call: &Call) {
        let name = call.script().name;
        let lines: Vec<_> = call.script().text.lines().collect();
        let is_header = |at: &usize| lines[*at].starts_with("-- KEYS: ");
        let headers: Vec<_> = (0..lines.len()).filter(is_header).collect();
        let listed = lines[headers.last().unwrap() - 1].strip_prefix("-- Prelude: ");
        let listed = listed.map_or(0, |names| names.split(", ").count());
        assert_eq!(headers.len() - 1, listed, "preludes of {name}");
        let says = lines[0] == "--!df flags=allow-undeclared-keys";
        assert!(
            says || !call.needs_the_whole_slot(),
            "{name} makes names of keys"
        );
    }

    /// The numbered items of a header line and of the indented lines that continue it.
    fn count(call: &Call, what: &str) -> usize {
        let prefix = format!("-- {what}: ");
        let text = call.script().text;
        // The last one, since a prelude's may be before it.
        let (_, own) = text.rsplit_once(&prefix).unwrap();
        let mut lines = own.lines();
        let first = lines.next().unwrap();
        let more = lines.map_while(|line| line.strip_prefix("--   "));
        let text = std::iter::once(first).chain(more).collect::<Vec<_>>();
        text.join(" ")
            .split(", ")
            .filter(|item| item.trim_start().starts_with(char::is_numeric))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    script!(PROBE = "rlock_release");

    #[test]
    fn sha_is_that_of_the_text() {
        let sha = sha1_smol::Sha1::from(PROBE.text).digest().to_string();
        assert_eq!(*PROBE.sha, sha);
        assert_eq!(PROBE.sha.len(), 40);
    }

    #[test]
    fn words_come_back_in_order() {
        let call = Call::new(&PROBE).key("k").arg("").number(30_000).arg("x y");
        assert_eq!(call.texts(), ["k", "", "30000", "x y"]);
        assert_eq!(call.key_count(), 1);
    }

    #[test]
    fn the_server_decides_how_a_script_publishes() {
        let call = Call::new(&PROBE).key("PUBLISH").arg("o").arg("PUBLISH");
        let call = call.publishing().number(3);
        let words = |publish| call.words_for(publish).collect::<Vec<_>>().join(&b' ');
        assert_eq!(words(Publish::Everywhere), b"PUBLISH o PUBLISH PUBLISH 3");
        assert_eq!(words(Publish::InShard), b"PUBLISH o PUBLISH SPUBLISH 3");
        let silent = Call::new(&PROBE).key("k").arg("PUBLISH");
        let last = silent.words_for(Publish::InShard).last();
        assert_eq!(last, Some(&b"PUBLISH"[..]));
    }

    #[test]
    fn milliseconds_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::from_millis(30_000)), 30_000);
        assert_eq!(millis(Duration::from_nanos(1_000_001)), 2);
    }
}
