use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", fsync = "all")]
async fn fsync_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", fsync = 1)]
async fn fsync_number(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", replica_ack = none, fsync = replicas)]
async fn fsync_of_no_replicas(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", fsync = master)]
async fn fsync_unknown(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = exclusive)]
async fn kind_exclusive(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = "fair")]
async fn kind_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = RLock)]
async fn kind_of_another_library(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = fiar)]
async fn kind_unknown(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = fair(limit = 3))]
async fn kind_with_arguments(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lockAtLeastFor = "1s")]
async fn option_at_least(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", permits = 3)]
async fn option_permits(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", owner = "me")]
async fn owner_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", replica_ack = "majority")]
async fn replica_ack_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", replica_ack = quorum)]
async fn replica_ack_unknown(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", replica_ack = 0)]
async fn replica_ack_zero(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(3))]
async fn semaphore_argument_without_name(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(limit = "3"))]
async fn semaphore_limit_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(limit = 5000000000))]
async fn semaphore_limit_too_large(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(limit = 3, limit = 4))]
async fn semaphore_limit_twice(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(limit = 0))]
async fn semaphore_limit_zero(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(limit = 3, take = 0))]
async fn semaphore_take_zero(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(limit = 3, take = 4))]
async fn semaphore_takes_too_many(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(permits = 3))]
async fn semaphore_unknown_argument(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(limit: 3))]
async fn semaphore_with_a_colon(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(limit = 3), owner = OWNER)]
async fn semaphore_with_owner(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(take = 2))]
async fn semaphore_without_arguments(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore)]
async fn semaphore_without_limit(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = fenced, token = user_id)]
async fn token_hides_a_parameter(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = fenced, token = 7)]
async fn token_is_no_name(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", token = token)]
async fn token_without_fenced(user_id: u64) -> Result<(), Error> { Ok(()) }

fn main() {}
