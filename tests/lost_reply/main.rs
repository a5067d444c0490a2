//! A command or a reply is lost, or comes too late. In each case no lock is left without a holder, no
//! lock is freed twice, and a release that has run is no error.
//!
//! On a single server and in a cluster; some also with TLS and behind a sentinel.

mod acquisitions;
mod fair;
mod late;
mod others;
mod reentries;
mod releases;
mod stage;

use std::time::Duration;

use futures::future::join_all;
use tests::{DEADLINE, Loss, Place};

/// The time-out of a call. After half of it without a reply the client closes the connection. Short,
/// since each lost reply costs this time; far longer than a reply takes.
const RESPONSE: Duration = Duration::from_millis(2400);
/// How late a wait may end if threads have to wait for a processor.
const LATE: Duration = Duration::from_secs(1);

/// How many losses in a row a call survives that does not wait for a lock.
fn tries(loss: Loss) -> &'static [usize] {
    match loss {
        // Each loss takes half of the time.
        Loss::Reply | Loss::Request => &[1],
        Loss::CutAfter | Loss::CutBefore => &[1, 3],
    }
}

/// Tests all kinds of loss: concurrently, since they mostly wait, or one after the other in a cluster,
/// of which each would need its own.
async fn each(place: Place, losses: &[Loss], test: impl AsyncFn(Loss)) {
    if place == Place::Cluster {
        for &loss in losses {
            test(loss).await;
        }
    } else {
        join_all(losses.iter().map(|&loss| test(loss))).await;
    }
}

/// Makes a test of each of these cases at a place.
macro_rules! at {
    ($name:ident = $place:ident, $($module:ident: $($case:ident)*;)*) => {
        mod $name {
            $($(
                #[tokio::test]
                async fn $case() {
                    crate::$module::$case(tests::Place::$place).await;
                }
            )*)*
        }
    };
}

macro_rules! cases {
    ($($cases:tt)*) => {
        at! { single = Single, $($cases)* }
        at! { cluster = Cluster, $($cases)* }
    };
}

macro_rules! short {
    ($($cases:tt)*) => {
        at! { tls = Tls, $($cases)* }
        at! { sentinel = Sentinel, $($cases)* }
    };
}

cases! {
    acquisitions:
        a_lost_acquisition_is_made_once
        a_wait_that_ends_with_the_outcome_unknown_leaves_nothing
        a_try_whose_outcome_is_unknown_leaves_nothing;
    releases:
        a_lost_release_is_a_release
        a_lock_is_kept_for_its_min_hold_whatever_is_lost
        a_dropped_guard_whose_release_is_lost
        the_next_holder_has_it_while_the_reply_is_missing
        a_repeated_release_frees_no_newer_hold_of_another_client
        a_release_whose_reply_is_lost_for_longer_than_the_lease
        a_release_that_is_never_answered_goes_on_in_the_background;
    reentries:
        a_lost_reentry_counts_once
        a_reentry_with_the_outcome_unknown_is_set_back;
    fair:
        a_turn_of_a_fair_lock_whatever_is_lost;
    others:
        a_force_unlock_whose_reply_was_lost_freed_the_lock_of_the_next_holder
        a_steal_is_repeated
        an_adoption_finds_its_own_hold
        a_repeated_adoption_takes_nothing_from_a_later_holder
        a_repeated_steal_takes_nothing_from_a_later_holder
        questions_are_repeated;
    late:
        a_delayed_acquisition_does_not_run_after_its_repeat
        a_delayed_acquisition_does_not_run_after_its_compensation
        a_delayed_reentry_does_not_run_after_its_end
        a_delayed_release_frees_no_newer_hold_of_another_client
        a_delayed_release_frees_no_newer_hold_of_the_same_client
        commands_that_a_resumed_server_reads_leave_nothing;
}

// What is said to the server is the same there, and the way to it is another one.
short! {
    acquisitions:
        a_lost_acquisition_is_made_once
        a_try_whose_outcome_is_unknown_leaves_nothing;
    releases:
        a_lost_release_is_a_release
        a_repeated_release_frees_no_newer_hold_of_another_client;
    reentries:
        a_lost_reentry_counts_once;
    late:
        a_delayed_acquisition_does_not_run_after_its_repeat
        a_delayed_release_frees_no_newer_hold_of_the_same_client
        commands_that_a_resumed_server_reads_leave_nothing;
}
