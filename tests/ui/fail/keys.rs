use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id.await>")]
async fn await_in_placeholder(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:< user_id >")]
async fn blank_in_placeholder(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = " ")]
async fn blank_key(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "")]
async fn empty_key(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<>")]
async fn empty_placeholder(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id()>")]
async fn function_call(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = ["order:<user_id>", "user:<user_id>"])]
async fn key_is_a_list(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = 42)]
async fn key_is_no_template(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(
    key = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
)]
async fn key_too_long(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "account:<from>", keys = ["account:<to>"])]
async fn key_with_keys(from: u64, to: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock("order:<user_id>")]
async fn key_without_name(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = ["account:<from>", 7])]
async fn keys_element_is_no_key(from: u64, to: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = [])]
async fn keys_empty(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = "order:<user_id>")]
async fn keys_is_one_key(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = ["account:<from>", "account:<to>", "account:<from>"])]
async fn keys_twice_the_same(from: u64, to: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = ["account:<from>", "account:<too>"])]
async fn keys_unknown_parameter(from: u64, to: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = ["account:<from>", "account:<to>"], min_hold = "1s")]
async fn keys_with_min_hold(from: u64, to: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = ["account:<from>", "account:<to>"], kind = semaphore(limit = 3))]
async fn keys_with_semaphore(from: u64, to: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = ["account:<from>", "account:<to>"], kind = fenced, token = token)]
async fn keys_with_token(from: u64, to: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id.pow(2)>")]
async fn method_with_arguments(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(wait = "1s")]
async fn missing_key(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", name = " ")]
async fn name_blank(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", name = "place:<user_id>")]
async fn name_is_no_template(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", name = place_order)]
async fn name_without_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock]
async fn no_options(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>")]
async fn no_parameters() -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<u64::MAX>")]
async fn path_in_placeholder(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:{user_id}")]
async fn placeholder_in_braces(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<self.user_id>")]
async fn self_in_function(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = vec!["account:<from>", "vault"])]
async fn template_in_a_vec(from: u64, to: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>".to_owned())]
async fn template_in_an_expression(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id")]
async fn unclosed_placeholder(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id:width$>")]
async fn unknown_format(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user>:<usre_id>")]
async fn unknown_parameter(user_id: u64, item: &str) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:user_id>")]
async fn unmatched_close(user_id: u64) -> Result<(), Error> { Ok(()) }

mod unnamed_parameter {
    use super::*;

    struct Order {
        id: u64,
    }

    #[distributed_lock(key = "order:<order.id>")]
    async fn place(Order { id }: Order) -> Result<u64, Error> {
        Ok(id)
    }
}

#[distributed_lock(key = "order:<user_id>")]
async fn wildcard_parameter(_: u64) -> Result<(), Error> { Ok(()) }

fn main() {}
