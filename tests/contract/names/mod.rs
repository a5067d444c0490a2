//! Names as keys: names that look alike, and keys of other programs.

use tests::{Backend, DEADLINE, World, within};

mod braces;
mod foreign;
mod numbers;

/// Runs one behaviour on this backend, and checks that it has left nothing.
async fn run<B: Backend>(name: &str, behaviour: impl AsyncFnOnce(&World)) {
    let world = World::open::<B>(name).await;
    within(2 * DEADLINE, behaviour(&world)).await;
    world.remove_notes().await;
    world.assert_clean().await;
}

/// One test for each behaviour and backend.
macro_rules! behaviours {
    ($($module:ident: $($behaviour:ident),+;)+) => {
        $(mod $module {
            mod embedded {
                $(#[tokio::test(start_paused = true)]
                async fn $behaviour() {
                    let behaviour = async |world: &_| crate::names::$module::$behaviour(world).await;
                    crate::names::run::<tests::Embedded>(stringify!($behaviour), behaviour).await;
                })+
            }
            mod redis {
                $(#[tokio::test]
                async fn $behaviour() {
                    let behaviour = async |world: &_| crate::names::$module::$behaviour(world).await;
                    crate::names::run::<tests::Redis>(stringify!($behaviour), behaviour).await;
                })+
            }
        })+
    };
}

mod suite {
    behaviours! {
        braces: setting_one_semaphore_loses_no_permit_of_the_other,
            deleting_one_latch_says_nothing_of_the_other,
            a_writer_that_is_preferred_at_one_lock_keeps_no_reader_from_the_other,
            a_token_seen_for_one_value_is_not_asked_of_the_other,
            fair_locks_share_redissons_queue,
            permits_with_leases_share_redissons_set,
            fenced_locks_share_redissons_counter,
            a_namespace_keeps_them_apart;
        foreign: the_hash_of_somebody_else_is_neither_waited_for_nor_deleted,
            a_large_hash_with_a_mode_of_its_own_is_not_deleted,
            the_lock_of_anybody_is_waited_for_and_can_be_forced;
        numbers: deleting_a_latch_deletes_no_key_of_another_type,
            permits_are_not_set_over_a_key_of_another_type,
            what_is_no_fencing_token_is_of_another_type;
    }
}
