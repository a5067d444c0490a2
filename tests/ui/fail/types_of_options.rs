use redlock_rt::{Error, distributed_lock};

const SECONDS: u64 = 30;
const LIMIT: usize = 3;

#[distributed_lock(key = "order:<user_id>", client = user_id)]
async fn client_is_no_client(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", fsync = { user_id })]
async fn fsync_is_no_fsync(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lease = 2 * SECONDS)]
async fn lease_is_no_duration(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = semaphore(limit = LIMIT))]
async fn limit_is_no_u32(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", owner = user_id)]
async fn owner_is_no_owner(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", renew = SECONDS)]
async fn renew_is_nothing_to_renew_by(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", replica_ack = { replicas })]
async fn replica_ack_is_no_ack(user_id: u64, replicas: u32) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = fenced, token = fence)]
async fn token_is_a_number(user_id: u64) -> Result<String, Error> { Ok(fence) }

#[distributed_lock(key = "order:<user_id>", wait = user_id)]
async fn wait_is_no_duration(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", when = user_id)]
async fn when_is_no_bool(user_id: u64) -> Result<(), Error> { Ok(()) }

fn main() {}
