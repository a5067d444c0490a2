//! The steps, each with its picture, and with what has to happen for it to go wrong.

use crate::cli::FaultAt;
use crate::service::LockKind;

/// One step of the story.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) lock: LockKind,
    pub(super) title: &'static str,
    pub(super) picture: &'static str,
    /// One order in so many takes 450 ms; none for zero.
    pub(super) stall_one_in: u32,
    /// What is broken, and when.
    fault: Option<&'static str>,
    pub(super) moral: &'static str,
}

impl Step {
    pub(super) fn fault(&self) -> Result<Option<FaultAt>, String> {
        self.fault.map(str::parse).transpose()
    }
}

pub(super) const STEPS: [Step; 8] = [
    Step {
        lock: LockKind::Off,
        title: "nothing",
        picture: "
  instance 1   has user 7 ordered? no ---------- buy
  instance 2     has user 7 ordered? no ---------- buy      a second voucher
",
        stall_one_in: 0,
        fault: None,
        moral: "All requests of a user look before one of them has bought.",
    },
    Step {
        lock: LockKind::Setnx,
        title: "SET key NX, and an instance is killed",
        picture: "
  instance 1   SET order:7 NX -- look -- killed
  instance 2     SET order:7 NX? no .. no .. no .. no ..     for ever
",
        stall_one_in: 0,
        fault: Some("kill@300ms"),
        moral: "Nobody is left who would delete the keys that the instance had set.",
    },
    Step {
        lock: LockKind::SetnxTtl,
        title: "SET key NX PX 150, and some orders take 450 ms",
        picture: "
  instance 1   SET order:7 NX PX ---- look --- (key expires) ---------- buy -- DEL order:7
  instance 2     SET? no .. no .. no ........... SET -- look ------------ buy     |
  instance 3       SET? no .. no .. no .. no .. no .. no .. no .. no .. no .. SET -- look
",
        stall_one_in: 8,
        fault: None,
        moral: "The key of a slow order expires, and its DEL deletes the key of the next one.",
    },
    Step {
        lock: LockKind::Token,
        title: "a token that is compared before the key is deleted; some orders take 450 ms",
        picture: "
  instance 1   SET order:7 a NX PX -- look --- (key expires) ---------- buy -- DEL if a: no
  instance 2     SET? no .. no .. no ........... SET b -- look ------------ buy -- DEL if b
",
        stall_one_in: 8,
        fault: None,
        moral: "Nobody deletes the key of another any more. The slow order is not alone all the same.",
    },
    Step {
        lock: LockKind::Rlock,
        title: "#[distributed_lock]; some orders take 450 ms and an instance is killed",
        picture: "
  instance 1   [ look -- renewed -- renewed -- buy ]
  instance 2     waiting                           [ look: ordered already ]
",
        stall_one_in: 8,
        fault: Some("kill@300ms"),
        moral: "Renewed while its holder lives, and free soon after it has died.",
    },
    Step {
        lock: LockKind::Rlock,
        title: "#[distributed_lock], and Redis stands still for 3 s",
        picture: "
  Redis        ............ stands still ............
  instance 1   [ look -- buy                          ]
  instance 2     waiting: 423, or 503 where Redis does not answer at all
",
        stall_one_in: 8,
        fault: Some("pause@300ms"),
        moral: "Requests fail and say so; nothing is done without the lock.",
    },
    Step {
        lock: LockKind::Rlock,
        title: "#[distributed_lock], and Redis loses its data",
        picture: "
  Redis        ------- restarted, empty -------
  instance 1   [ look -------------------- buy (cancelled, if it has noticed by then)
  instance 2     waiting                 [ look ------ buy ]
",
        stall_one_in: 8,
        fault: Some("restart-without-data@300ms"),
        moral: "Two may hold it until the first notices: no lock on one Redis can be better than that.",
    },
    Step {
        lock: LockKind::Fenced,
        title: "the same, with a token that the database compares",
        picture: "
  Redis        ------- restarted, empty -------
  instance 1   [ fence 41 -- look -------- buy if the fence is 41: refused
  instance 2     waiting        [ fence 42 -- look -- buy if the fence is 42 ]
",
        stall_one_in: 8,
        fault: Some("restart-without-data@300ms"),
        moral: "Whoever is late is refused by the table that it writes to, whatever Redis remembers.",
    },
];
