//! Limits the calls in flight on a connection, and chooses which is sent next.
//!
//! Without a limit a burst of callers puts all their commands into the sockets. Each caller then waits for all of
//! them, and the server runs commands of callers that have gone.
//!
//! # Invariants
//!
//! 1. The calls of one share are sent in the order in which they came.
//! 2. A call waits only while its share has no room.
//! 3. Releases have their own share, so that none waits for acquisitions. Acquisitions may use what releases leave
//!    of their share, and room for one. All calls are in one queue at the server, and each call that came too late
//!    causes a release.
//!
//! A call without room is sent later by the task of the connection, so a caller that is not polled delays no
//! other. A caller that leaves takes its call back: it was never sent, and there is nothing to withdraw. A call is
//! not sent if its reply would come after the end of its caller's wait, judged by the last replies. Steps that
//! follow from a reply (the script after a RESTORE that found the lock taken) are sent at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::clock;

/// The most room for calls in flight: this many, or this many KiB.
const MOST: usize = 1024;
/// The room for callers at first, and for a slow server; other clients have as much.
const LEAST: usize = 2;
/// The room is halved while replies take this much longer than twice the shortest time.
const SLOW: Duration = Duration::from_millis(100);
/// After this many late replies in a row with little in flight, that is the new distance of the server.
const LASTING: u32 = 64;

/// The purpose of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::connection) enum Share {
    /// Calls of callers.
    #[default]
    Callers,
    /// Releases, withdrawals and heartbeats.
    Upkeep,
}

/// Calls in flight, and calls `T` that wait for room.
#[derive(Debug)]
pub(super) struct Admission<T> {
    /// By their shares.
    rooms: [Room<T>; 2],
    pace: Pace,
}

#[derive(Debug)]
struct Room<T> {
    taken: usize,
    most: usize,
    line: VecDeque<T>,
}

/// The duration of replies. Measured for one command after the other.
#[derive(Debug, Default)]
struct Pace {
    /// The number of commands so far, and of replies.
    asked: u64,
    replied: u64,
    /// The measured command, and a moment before it.
    measured: Option<(u64, Instant)>,
    shortest: Option<Duration>,
    /// How many replies in a row were late with the least room, and their shortest time.
    late: Option<(u32, Duration)>,
    /// Whether a reply was late since the last time that no call waited for room.
    was_late: bool,
    last_two: [Duration; 2],
}

impl<T> Default for Admission<T> {
    fn default() -> Self {
        Self {
            rooms: [LEAST, MOST].map(Room::of),
            pace: Pace::default(),
        }
    }
}

impl<T> Room<T> {
    fn of(most: usize) -> Self {
        Self {
            taken: 0,
            most,
            line: VecDeque::new(),
        }
    }
}

impl<T> Admission<T> {
    /// Whether a call may be sent now.
    pub(super) fn admits(&self, share: Share) -> bool {
        self.has_room(share) && self.rooms[share as usize].line.is_empty()
    }

    fn has_room(&self, share: Share) -> bool {
        let room = &self.rooms[share as usize];
        let others = match share {
            Share::Callers => self.rooms[Share::Upkeep as usize].taken.min(room.most - 1),
            Share::Upkeep => 0,
        };
        room.taken + others < room.most
    }

    /// Makes a call wait until [`next`](Self::next) returns it.
    pub(super) fn join(&mut self, share: Share, call: T) {
        self.rooms[share as usize].line.push_back(call);
    }

    /// The call to send next, if there is room for one.
    pub(super) fn next(&mut self) -> Option<(Share, T)> {
        [Share::Upkeep, Share::Callers]
            .into_iter()
            .find_map(|share| {
                let has_room = self.has_room(share);
                let room = &mut self.rooms[share as usize];
                let call = has_room.then(|| room.line.pop_front())??;
                if room.line.is_empty() {
                    // The memory of a long queue is not kept.
                    room.line = VecDeque::new();
                }
                Some((share, call))
            })
    }

    /// Commands were passed to the connection, at `since` or later.
    pub(super) fn sent(&mut self, commands: usize, since: Option<Instant>) {
        self.pace.asked += commands as u64;
        if let (None, Some(since)) = (self.pace.measured, since) {
            self.pace.measured = Some((self.pace.asked, since));
        }
    }

    /// A call of this many bytes was sent. Returns the room that it [gives back](Self::gives_back).
    pub(super) fn takes(&mut self, share: Share, bytes: usize) -> usize {
        let room = 1 + bytes / 1024;
        self.rooms[share as usize].taken += room;
        room
    }

    pub(super) fn gives_back(&mut self, share: Share, room: usize) {
        let taken = &mut self.rooms[share as usize].taken;
        *taken = taken.saturating_sub(room);
    }

    /// This many commands were answered.
    pub(super) fn replied(&mut self, commands: usize, now: Instant) {
        self.pace.replied += commands as u64;
        let replied = self.pace.replied;
        let Some((_, since)) = self.pace.measured.take_if(|(number, _)| *number <= replied) else {
            return;
        };
        self.took(now.saturating_duration_since(since));
    }

    /// How long a reply took.
    pub(super) fn took(&mut self, took: Duration) {
        let shortest = self.pace.shortest.map_or(took, |known| known.min(took));
        self.pace.shortest = Some(shortest);
        self.pace.last_two = [self.pace.last_two[1], took];
        // As in TCP: doubled until a reply is late, then halved, and raised by steps, while callers wait for room.
        // Several clients then get fair shares, and a burst does not fill the queue at the server.
        let Room { most, line, .. } = &mut self.rooms[Share::Callers as usize];
        let is_late = took > shortest * 2 + SLOW;
        self.pace.notes(took, is_late && *most == LEAST);
        *most = if is_late {
            self.pace.was_late = true;
            (*most / 2).max(LEAST)
        } else if line.is_empty() {
            self.pace.was_late = false;
            *most
        } else if self.pace.was_late {
            (*most + LEAST).min(MOST)
        } else {
            (*most * 2).min(MOST)
        };
    }

    /// Whether the reply to a call that is sent now usually comes too late. Otherwise, in an overload, mainly
    /// callers whose time is just over would be served.
    pub(super) fn is_too_late(&self, until: Option<Instant>, now: Instant) -> bool {
        // A server that stopped once is not slow.
        let usual = self.pace.last_two.into_iter().min().unwrap_or_default();
        // Longer than the last ones, while the queue at the server grows.
        let shortest = self.pace.shortest.unwrap_or(usual);
        let expected = usual + usual.saturating_sub(shortest);
        until.is_some_and(|until| until <= clock::after(now, expected))
    }

    /// Nothing more is sent.
    pub(super) fn close(&mut self) -> impl Iterator<Item = T> + use<T> {
        let lines = self.rooms.each_mut();
        let [callers, upkeep] = lines.map(|room| std::mem::take(&mut room.line));
        upkeep.into_iter().chain(callers)
    }

    /// Gives callers as much room as they can ever get.
    #[cfg(test)]
    pub(super) fn has_all_room(&mut self) {
        self.rooms[Share::Callers as usize].most = MOST;
    }
}

impl Pace {
    fn notes(&mut self, took: Duration, is_late: bool) {
        self.late = self.late.filter(|_| is_late);
        if is_late {
            let (count, shortest) = self.late.unwrap_or((0, took));
            self.late = Some((count + 1, shortest.min(took)));
        }
        if let Some((_, shortest)) = self.late.take_if(|(count, _)| *count == LASTING) {
            self.shortest = Some(shortest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn room(admission: &mut Admission<()>) -> usize {
        let mut room = 0;
        while admission.admits(Share::Callers) {
            room += admission.takes(Share::Callers, 1);
        }
        admission.gives_back(Share::Callers, room);
        room
    }

    /// A reply came while a caller waited for room.
    fn took(admission: &mut Admission<()>, took: Duration) {
        admission.join(Share::Callers, ());
        admission.took(took);
        assert_eq!(admission.next(), Some((Share::Callers, ())));
    }

    #[test]
    fn a_slow_server_has_less_in_flight_and_a_fast_one_more_again() {
        let mut admission = Admission::default();
        (0..9).for_each(|_| took(&mut admission, 40 * MS));
        assert_eq!(room(&mut admission), MOST, "that far away");
        (0..20).for_each(|_| took(&mut admission, 181 * MS));
        assert_eq!(room(&mut admission), LEAST);
        (0..MOST / LEAST - 1).for_each(|_| took(&mut admission, 180 * MS));
        assert_eq!(room(&mut admission), MOST);
    }

    #[test]
    fn a_server_that_is_farther_away_since_a_moment_was_slow_for_ever() {
        let mut admission = Admission::default();
        (0..9).for_each(|_| took(&mut admission, MS));
        (0..LASTING + 20).for_each(|_| took(&mut admission, 150 * MS));
        assert!(room(&mut admission) < MOST / 8, "step by step");
        let now = clock::now();
        assert!(!admission.is_too_late(Some(now + 151 * MS), now));
        (0..MOST / LEAST).for_each(|_| took(&mut admission, 150 * MS));
        assert_eq!(room(&mut admission), MOST);
    }

    #[test]
    fn room_that_nobody_waits_for_does_not_become_more() {
        let mut admission = Admission::default();
        admission.took(MS);
        assert_eq!(room(&mut admission), LEAST);
        // All replies of one read give back their room before that counts.
        took(&mut admission, MS);
        assert_eq!(room(&mut admission), 2 * LEAST);
    }

    #[test]
    fn a_burst_after_a_late_reply_long_ago_had_room_step_by_step() {
        let mut admission = Admission::default();
        took(&mut admission, MS);
        took(&mut admission, 200 * MS);
        assert_eq!(room(&mut admission), LEAST);
        admission.took(MS);
        (0..2).for_each(|_| took(&mut admission, MS));
        assert_eq!(room(&mut admission), 4 * LEAST);
    }

    #[test]
    fn a_server_that_stood_still_once_is_not_slow() {
        let mut admission = Admission::<()>::default();
        let now = clock::now();
        let late = |admission: &Admission<()>| admission.is_too_late(Some(now + 900 * MS), now);
        admission.took(MS);
        admission.took(6000 * MS);
        assert!(!late(&admission));
        admission.took(1000 * MS);
        assert!(late(&admission));
        assert!(!admission.is_too_late(None, now));
    }

    #[test]
    fn long_commands_take_more_room() {
        let mut admission = Admission::<()>::default();
        admission.has_all_room();
        let long = admission.takes(Share::Callers, MOST * 1024);
        assert!(!admission.admits(Share::Callers) && admission.admits(Share::Upkeep));
        admission.gives_back(Share::Callers, long);
        assert!(admission.admits(Share::Callers));
    }

    #[test]
    fn callers_have_the_room_that_releases_leave_and_at_least_one_call() {
        let mut admission = Admission::<()>::default();
        admission.has_all_room();
        let mut released = 0;
        while admission.admits(Share::Upkeep) {
            released += admission.takes(Share::Upkeep, 1);
        }
        assert_eq!(room(&mut admission), 1);
        admission.gives_back(Share::Upkeep, released - 10);
        assert_eq!(room(&mut admission), MOST - 10);
        // The other way round there is as much as before.
        while admission.admits(Share::Callers) {
            admission.takes(Share::Callers, 1);
        }
        assert!(admission.admits(Share::Upkeep));
    }

    #[test]
    fn a_reply_is_expected_later_than_the_last_while_the_line_grows() {
        let mut admission = Admission::<()>::default();
        let now = clock::now();
        let late =
            |admission: &Admission<()>, rest| admission.is_too_late(Some(now + rest * MS), now);
        (0..2).for_each(|_| admission.took(200 * MS));
        assert!(
            late(&admission, 200) && !late(&admission, 201),
            "that far away"
        );
        (0..2).for_each(|_| admission.took(300 * MS));
        assert!(late(&admission, 400) && !late(&admission, 401));
    }

    #[test]
    fn one_command_after_the_other_is_measured() {
        let mut admission = Admission::<()>::default();
        let start = clock::now();
        admission.sent(1, Some(start));
        admission.sent(1, Some(start + 10 * MS));
        admission.replied(1, start + 30 * MS);
        admission.replied(1, start + 60 * MS);
        assert_eq!(admission.pace.last_two, [Duration::ZERO, 30 * MS]);
        admission.sent(1, Some(start + 70 * MS));
        admission.replied(1, start + 75 * MS);
        assert_eq!(admission.pace.last_two, [30 * MS, 5 * MS]);
    }
}
