//! Barriers: nobody passes before all have arrived, a party that dies breaks the barrier for the others, and
//! nothing is left.

mod world;

mod cancel;
mod cyclic;
mod double;
mod lost_reply;
mod processes;

/// One test for each behaviour, on this backend.
macro_rules! behaviours {
    ($backend:ty, $_kind:ty) => {
        tests::behaviours! { $backend,
            cyclic: all_pass_together_again_and_again, one_party_passes_at_once,
                a_wait_that_runs_out_leaves, a_wait_of_zero_asks_once, a_dropped_wait_leaves,
                a_party_that_dies_breaks_it_until_it_is_reset, who_looks_later_is_told_too,
                a_reset_sends_those_who_wait_away, a_lost_party_passes_in_no_generation,
                a_party_that_is_deleted_does_not_pass_with_the_others, what_is_deleted_is_lost,
                tasks_of_a_client_look_once_for_all, tasks_of_a_client_pass_as_often_as_they_like, a_shut_down_sends_those_who_wait_away,
                an_end_that_nobody_announced_is_found_by_polling, names_and_kinds_do_not_meddle,
                what_cannot_be_is_refused, another_type_of_value_is_told,
                parties_stayed_for_good_beside_a_key_of_their_name;
            double: all_enter_and_leave_together, a_dropped_guard_leaves_without_waiting,
                who_comes_while_others_are_inside_waits_for_the_next_round,
                a_party_that_dies_inside_breaks_it, a_party_that_dies_is_told_to_those_inside,
                a_reset_ends_the_round, a_lost_party_is_told, a_wait_to_leave_runs_out,
                an_enter_that_is_dropped_leaves, those_who_are_deleted_inside_keep_nobody_out,
                tasks_of_a_client_enter_together_behind_others;
        }
    };
}

tests::everywhere!(behaviours, behaviours, redlock_rt::CyclicBarrier);
