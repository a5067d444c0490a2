//! The behaviour that locks of every kind have in common, wherever clients connect to: the embedded
//! engine, a server, with TLS, behind sentinels, a cluster.
//!
//! [`every_behaviour`] is the one list. A kind of lock is a [`Kind`](kind::Kind) and one line of
//! [`kinds`]; it then has a test for each behaviour and backend. A behaviour that is not in the list is
//! dead code, which clippy refuses.
//!
//! A leadership and a fire are none: most behaviours need a try, a hold count, options or a re-entry, which a
//! leadership has not, and that a name can be held again, which a fire that is done cannot. See tests/leader, tests/once.

mod kind;
mod locks;
mod party;
mod world;

mod body;
mod exclusion;
mod identity;
mod inspection;
mod lease;
mod loss;
mod reentry;
mod release;
mod waiting;

/// One test for each behaviour, of this kind of lock, on this backend.
macro_rules! every_behaviour {
    ($backend:ty, $kind:path) => {
        behaviours! { $backend, $kind,
            exclusion: one_holder_at_a_time, a_hundred_tasks_of_two_clients_count_to_a_hundred,
                names_do_not_meddle, handles_of_one_name_are_one_lock, try_lock_answers_at_once;
            waiting: a_release_wakes_a_waiter_elsewhere, a_release_wakes_a_waiter_of_the_same_client,
                a_dropped_guard_wakes_a_waiter, a_force_unlock_wakes_a_waiter,
                waiters_of_a_client_are_served_in_order, a_wait_runs_out,
                a_wait_is_served_in_time, a_wait_of_zero_tries_once,
                a_waiter_that_gives_up_leaves_its_place, an_expired_holder_is_succeeded,
                a_release_that_nobody_announced_is_found_by_polling;
            reentry: a_guard_is_reentered, a_body_reenters, with_reenters, try_lock_reenters,
                reentry_goes_deep, an_owner_reenters, an_owner_holds_afresh_after_its_release,
                a_partial_release_keeps_the_lock, guards_may_end_in_any_order,
                siblings_exclude_each_other_and_nested_calls_reenter, siblings_under_a_holder_take_turns,
                a_shorter_lease_shortens_nothing, a_longer_lease_lengthens,
                a_lost_hold_is_not_revived, spawned_tasks_inherit_nothing,
                another_client_does_not_reenter, another_name_is_not_reentered,
                a_body_does_not_reenter_after_its_end, reentry_passes_those_who_wait;
            release: unlock_tells_what_became_of_it, an_expired_lock_is_not_released,
                a_drop_releases, a_drop_of_an_inner_guard_keeps_the_lock,
                a_late_release_frees_no_newer_hold, a_guard_moves_to_another_task,
                a_guard_moves_to_another_thread, force_unlock_frees_it,
                a_panic_in_a_body_releases;
            lease: the_client_sets_the_default, a_fixed_lease_ends, a_lease_is_renewed,
                renewal_may_be_more_frequent, extend_lengthens, extend_never_shortens,
                extend_of_a_lost_lock_fails, max_hold_ends_a_stuck_holder,
                a_reentry_outlasted_the_max_hold_of_its_guard;
            loss: a_deleted_lock_is_lost, a_taken_lock_is_lost, a_force_unlocked_lock_is_lost,
                a_lost_lock_stays_lost, loss_reaches_every_guard,
                a_key_of_another_type_is_a_lost_lock;
            body: run_gives_the_output, with_locks_and_releases, loss_drops_the_body_first,
                with_drops_the_body_before_the_guard, a_body_that_completed_is_not_called_lost,
                a_body_does_not_start_under_a_lost_lock, spawned_work_goes_on_after_a_loss;
            inspection: a_free_lock_has_no_holder, a_held_lock_tells_its_holder,
                what_another_client_put_there_is_told, a_guard_knows_its_lock;
            identity: owners_are_the_clients_uuid_and_a_number, owner_numbers_never_repeat,
                a_hold_keeps_its_owner;
        }
    };
}

/// Where only the way to the server is another one: what connects, waits, subscribes, renews or loses
/// something.
macro_rules! some_behaviours {
    ($backend:ty, $kind:path) => {
        behaviours! { $backend, $kind,
            exclusion: a_hundred_tasks_of_two_clients_count_to_a_hundred;
            waiting: a_release_wakes_a_waiter_elsewhere, a_wait_runs_out,
                a_release_that_nobody_announced_is_found_by_polling;
            lease: a_lease_is_renewed;
            loss: a_taken_lock_is_lost, a_force_unlocked_lock_is_lost;
        }
    };
}

macro_rules! behaviours {
    ($backend:ty, $kind:path, $($module:ident: $($behaviour:ident),+;)+) => {
        $(mod $module {
            $(#[test]
            fn $behaviour() {
                crate::world::run::<$backend>(&$kind, stringify!($behaviour), |world| {
                    Box::pin(crate::$module::$behaviour(world))
                });
            })+
        })+
    };
}

/// Every kind wherever it can be: the last ones need servers that are independent, and a cluster
/// refuses them.
macro_rules! kinds {
    ($($name:ident = $kind:path;)+ @independent $($single:ident = $other:path;)+) => {
        $(mod $name {
            tests::everywhere!(every_behaviour, some_behaviours, $kind);
        })+
        $(mod $single {
            tests::where_servers_are_independent!(every_behaviour, some_behaviours, $other);
        })+
    };
}

kinds! {
    rlock = crate::kind::RLOCK;
    fair = crate::kind::FAIR;
    read = crate::kind::READ;
    write = crate::kind::WRITE;
    write_among_readers = crate::kind::WRITE_AMONG_READERS;
    fenced = crate::kind::FENCED;
    spin = crate::kind::SPIN;
    multi = crate::kind::MULTI;
    multi_one_by_one = crate::kind::MULTI_ONE_BY_ONE;
    @independent
    red = crate::kind::RED;
}
