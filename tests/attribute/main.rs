//! The promises of `#[distributed_lock]`, on the embedded engine and on a real server.
//!
//! [`behaviours`] lists the behaviours that depend on Redis; each has a test on both. The other tests,
//! on the embedded engine, are about the functions that may have the attribute (`places`, `sends`,
//! `boxed`, `web`) and about values of options (`templates`).

mod world;

mod bindings;
mod boxed;
mod claims;
mod clients;
mod fallback;
mod hold;
mod keys;
mod kinds;
mod loss;
mod map_err;
mod nested;
mod once;
mod options;
mod order;
mod places;
mod release;
mod sends;
mod templates;
mod unseen;
mod web;

/// Each behaviour with a paused clock on an engine in this process, and on Redis.
macro_rules! behaviours {
    ($($module:ident: $($behaviour:ident),+;)+) => {
        mod embedded {
            tests::behaviours! { tests::Embedded, $($module: $($behaviour),+;)+ }
        }
        mod redis {
            tests::behaviours! { tests::Redis, $($module: $($behaviour),+;)+ }
        }
    };
}

behaviours! {
    kinds: exclusive_kinds_exclude, readers_share_and_writers_do_not, permits_are_counted,
        a_semaphore_takes_expressions;
    keys: several_are_sorted_and_taken_once, opposite_orders_never_deadlock,
        keys_are_expressions_too, a_list_makes_keys, blank_ones_are_refused;
    bindings: the_guard_of_each_kind, the_guard_of_several, tokens_increase,
        a_guard_in_the_body_does_not_hold_up_the_release;
    options: a_lease_is_a_literal_or_an_expression, renewal_is_a_switch,
        renewal_is_a_span, a_wait_is_an_expression, a_wait_for_ever, the_clients_wait_is_the_default,
        an_owner_reenters_from_another_task, when_false_there_is_no_lock, a_name_is_told;
    hold: max_hold_ends_the_body, min_hold_keeps_the_lock, min_hold_of_a_longer_body_keeps_nothing,
        min_hold_outlives_its_client, min_hold_does_not_outlive_a_crash, waiters_hear_of_min_hold;
    fallback: an_error_is_the_default, skipped_calls_give_the_default, values_are_given,
        another_function_is_called, methods_call_methods, one_fallback_is_not_the_other,
        an_unknown_outcome_is_unavailable, other_errors_are_never_skipped,
        a_loss_is_never_skipped;
    map_err: by_path_and_closure, of_losses, beside_fallbacks;
    loss: a_lost_lock_cancels, the_body_ends_in_its_frame_before_the_guard,
        a_body_that_completes_as_it_is_lost_keeps_its_value, finish_lets_it_end,
        error_after_tells_it_afterwards, what_only_the_release_finds_is_told,
        values_that_cannot_wait_are_told_too, a_lost_lock_runs_no_body;
    release: every_end_releases, a_panic_releases, a_call_dropped_anywhere_leaves_nothing,
        a_release_is_awaited_for_a_response_time_out, a_release_is_awaited_for_the_rest_of_the_lease;
    nested: nested_calls_reenter, nested_calls_reenter_one_of_several, nested_kinds_join,
        joined_calls_exclude_each_other, joined_calls_of_several_exclude_each_other,
        spawned_tasks_inherit_nothing;
    order: when_then_key_then_client_before_any_await, keys_are_made_in_their_order,
        parameters_are_used_before_they_move;
}
