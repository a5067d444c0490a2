//! The behaviour of semaphores and latches, and the answers about whatever is there, wherever clients
//! connect to.
//!
//! As in the suite of the locks, the lists below are complete: the behaviours of both semaphores, of
//! one kind only, of latches, and of inspections, each on each backend. A behaviour that is in no list is dead code,
//! which clippy refuses.

mod subject;
mod world;

mod acquiring;
mod guards;
mod inspection;
mod latches;
mod leases;
mod numbers;
mod plain;
mod waking;

/// One test for each behaviour, on this backend, of one kind of semaphore.
macro_rules! behaviours_of {
    ($backend:ty, $kind:ty, $($module:ident: $($behaviour:ident),+;)+) => {
        $(mod $module {
            $(#[test]
            fn $behaviour() {
                crate::world::run::<$backend>(stringify!($behaviour), |world| {
                    Box::pin(crate::$module::$behaviour::<$kind>(world))
                });
            })+
        })+
    };
}

/// The behaviours of both kinds of semaphores.
macro_rules! every_semaphore {
    ($backend:ty, $kind:ty) => {
        behaviours_of! { $backend, $kind,
            acquiring: no_more_are_given_than_there_are, several_are_taken_all_or_none,
                a_try_answers_at_once, a_wait_runs_out, a_wait_of_zero_tries_once,
                a_wait_is_served_in_time, names_do_not_meddle, handles_of_one_name_are_one_semaphore,
                where_none_were_set_there_are_none, a_hundred_tasks_never_have_more_than_there_are,
                what_cannot_be_is_refused, another_type_of_value_is_told;
            waking: a_release_wakes_a_waiter_elsewhere, a_release_wakes_a_waiter_of_the_same_client,
                a_dropped_guard_wakes_a_waiter, added_permits_wake_waiters,
                the_first_number_wakes_waiters, waiters_of_a_client_are_served_in_order,
                a_release_of_several_wakes_as_many, a_waiter_that_gives_up_leaves_its_place,
                a_try_that_is_dropped_leaves_nothing, a_release_that_nobody_announced_is_found_by_polling,
                a_shut_down_sends_waiters_away;
            guards: a_drop_gives_back, a_release_tells_what_became_of_it,
                a_guard_moves_to_another_thread, a_panic_gives_back, a_guard_knows_its_semaphore,
                a_shut_down_gives_back;
            numbers: the_number_is_set_once, permits_are_added_and_taken_away,
                a_limit_comes_with_the_first_acquisition, a_limit_changes_no_number_that_is_set,
                a_namespace_is_part_of_the_name;
        }
    };
}

/// The behaviours of the semaphore without leases.
macro_rules! every_plain {
    ($backend:ty, $_kind:ty) => {
        tests::behaviours! { $backend,
            plain: a_drain_takes_all_that_are_free, a_release_without_a_guard_adds,
                what_is_forgotten_stays_taken, a_deleted_semaphore_is_not_made_by_a_release;
        }
    };
}

/// The behaviours of the semaphore with leases.
macro_rules! every_leased {
    ($backend:ty, $_kind:ty) => {
        tests::behaviours! { $backend,
            leases: a_fixed_lease_ends, a_lease_is_renewed, the_client_sets_the_default,
                a_waiter_takes_what_expires_at_once, a_permit_of_a_dead_client_comes_back,
                a_released_permit_is_lost, a_permit_of_a_deleted_semaphore_stays_its_own,
                max_hold_ends_a_stuck_holder, extend_lengthens_and_never_shortens,
                extend_of_a_lost_permit_fails, a_lease_is_updated_by_the_id,
                any_client_releases_by_the_id, an_unknown_id_is_no_permit, a_forgotten_permit_ends,
                the_number_is_set_whoever_has_some, a_body_is_dropped_with_its_permit;
        }
    };
}

/// The behaviours of latches.
macro_rules! every_latch {
    ($backend:ty, $_kind:ty) => {
        tests::behaviours! { $backend,
            latches: a_count_is_set_once, counting_down_opens_it, nothing_goes_below_zero,
                all_who_wait_go_on, a_late_waiter_goes_on_at_once, a_wait_runs_out,
                a_wait_of_zero_looks_once, a_dropped_wait_leaves_nothing, a_guard_counts_when_dropped,
                a_guard_counts_once, a_deleted_latch_is_told, an_expired_latch_is_told,
                a_latch_counted_down_in_time_does_not_expire, a_new_latch_forgets_the_last_end,
                a_count_that_nobody_announced_is_found_by_polling, a_shut_down_sends_waiters_away,
                what_cannot_be_is_refused, another_type_of_value_is_told;
        }
    };
}

/// The answers about what is there.
macro_rules! every_inspection {
    ($backend:ty, $_kind:ty) => {
        tests::behaviours! { $backend,
            inspection: each_kind_of_lock_is_told, readers_and_writers_are_told_apart,
                those_who_wait_are_counted, semaphores_and_latches_are_told, what_is_no_lock_is_refused,
                a_scan_finds_what_is_there;
        }
    };
}

macro_rules! suites {
    ($($name:ident = $suite:ident, $kind:ty;)+) => {
        $(mod $name {
            tests::everywhere!($suite, $suite, $kind);
        })+
    };
}

suites! {
    semaphore = every_semaphore, redlock_rt::Semaphore;
    plain_semaphore = every_plain, redlock_rt::Semaphore;
    permit_expirable_semaphore = every_semaphore, redlock_rt::PermitExpirableSemaphore;
    leased_semaphore = every_leased, redlock_rt::PermitExpirableSemaphore;
    count_down_latch = every_latch, redlock_rt::CountDownLatch;
    whatever = every_inspection, redlock_rt::Client;
}
