//! Calls that are dropped at every point: they leave nothing, and the next caller gets the lock at once.
//!
//! Each case runs on the embedded engine, on a real Redis and in a cluster, again and again, dropping
//! its call one step later each time until the call completes. Some run with TLS and behind a sentinel.

mod calls;
mod dropped;
mod fair;
mod faults;
mod late;
mod multi;
mod outages;
mod rw;
mod stage;
mod waiting;

use std::time::Duration;
use tests::DEADLINE;

/// How soon the next caller gets the lock.
const NEXT: Duration = Duration::from_millis(100);

/// Makes a test of each of these cases at a place.
macro_rules! on_servers {
    ($name:ident = $place:ident, $($module:ident: $($case:ident)*;)*) => {
        mod $name {
            $($(
                #[test]
                fn $case() {
                    crate::stage::on_redis(tests::Place::$place, crate::$module::$case);
                }
            )*)*
        }
    };
}

/// Makes the tests of each case. On the engine, a call is dropped between any two steps of any task;
/// the number is the least number of such points. On Redis, a call is dropped between two wake-ups; on
/// a busy machine several wake-ups become one.
macro_rules! cases {
    ($($module:ident: $($case:ident($points:expr))*;)*) => {
        mod embedded {
            $($(
                #[test]
                fn $case() {
                    crate::stage::on_the_engine($points, crate::$module::$case);
                }
            )*)*
        }
        on_servers! { redis = Single, $($module: $($case)*;)* }
        on_servers! { cluster = Cluster, $($module: $($case)*;)* }
    };
}

cases! {
    calls:
        lock(5)
        lock_that_connects_first(15)
        try_lock(5)
        lock_with_a_body(10)
        unlock(5)
        unlock_of_one_guard_of_two(5)
        reenter(5)
        lock_in_a_body_that_holds_it(5)
        steal(8)
        steal_of_a_fenced_lock(8)
        adopt(5)
        campaign(5)
        campaign_of_one_who_has_resigned(10)
        resign(5)
        lock_of_an_owner(5)
        lock_of_an_owner_that_holds_it(5)
        extend(5);
    waiting:
        lock_behind_another_waiter(25)
        fenced_lock_behind_another_waiter(25)
        lock_behind_another_waiter_without_hand_over(40)
        lock_before_another_waiter(5)
        lock_that_connects_first_before_another_waiter(15)
        lock_behind_another_client(40)
        lock_that_connects_first_behind_another_client(50)
        lock_behind_another_client_and_before_another_waiter(40)
        lock_that_subscribes_again(90);
    fair:
        fair_lock(5)
        fair_try_lock(5)
        fair_unlock(5)
        fair_unlock_before_a_waiter(5)
        fair_unlock_before_a_waiter_whose_reply_is_lost(10)
        fair_lock_that_is_given_before_another_waiter(40)
        fair_lock_behind_another_client(40)
        fair_lock_that_connects_first_behind_another_client(50)
        fair_lock_behind_another_waiter(40)
        fair_lock_before_another_waiter(5)
        fair_lock_before_a_waiter_of_another_client(40)
        fair_lock_whose_reply_is_lost(20)
        fair_lock_whose_request_is_lost(20);
    multi:
        lock_of_many(5)
        lock_of_many_that_connects_first(15)
        try_lock_of_many(5)
        lock_of_many_one_by_one(10)
        lock_of_many_behind_another_client(40)
        lock_of_many_behind_the_last(40)
        lock_of_many_without_renewal(20)
        lock_of_many_with_a_body(10)
        unlock_of_many(5)
        reenter_of_many(5)
        lock_of_many_under_two_addresses(8)
        lock_of_many_whose_reply_is_lost(20)
        lock_of_many_whose_request_is_lost(20);
    outages:
        lock_without_a_connection(40)
        lock_whose_reply_is_lost(20)
        lock_whose_request_is_lost(20)
        unlock_without_a_connection(40)
        unlock_whose_reply_is_lost(20)
        unlock_whose_request_is_lost(20)
        reenter_without_a_connection(40)
        reenter_whose_reply_is_lost(10)
        extend_without_a_connection(40)
        extend_whose_reply_is_lost(10);
    rw:
        read(5)
        write(5)
        read_among_readers(5)
        read_behind_a_writer(40)
        write_behind_a_reader(40)
        preferred_write_behind_a_reader(40)
        preferred_write_whose_reply_is_lost(20)
        read_whose_reply_is_lost(20)
        read_in_a_write_body(10)
        downgrade(10)
        downgrade_whose_reply_is_lost(20)
        try_upgrade(10)
        try_upgrade_whose_reply_is_lost(20)
        try_upgrade_among_readers(5);
}

/// What connects, waits, subscribes or loses something: the way to the server is another one, and what
/// is said there is the same.
macro_rules! short {
    ($($name:ident = $place:ident;)+) => {
        $(on_servers! { $name = $place,
            calls: lock lock_that_connects_first unlock reenter;
            waiting: lock_behind_another_client lock_that_subscribes_again
                lock_that_connects_first_behind_another_client;
            fair: fair_lock_before_another_waiter
                fair_lock_that_connects_first_behind_another_client fair_lock_whose_reply_is_lost;
            multi: lock_of_many_whose_request_is_lost;
            outages: lock_without_a_connection lock_whose_reply_is_lost lock_whose_request_is_lost
                unlock_without_a_connection unlock_whose_reply_is_lost reenter_whose_reply_is_lost;
            rw: preferred_write_whose_reply_is_lost;
        })+
    };
}

short! {
    tls = Tls;
    sentinel = Sentinel;
}
