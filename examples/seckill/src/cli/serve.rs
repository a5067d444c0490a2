//! What an instance is made of.

use std::time::Duration;

use clap::Args;

use super::duration;
use crate::service::LockKind;

/// Where Redis is, if the command line does not say: other users of a machine can read that.
pub(crate) const REDIS_VARIABLE: &str = "SECKILL_REDIS";

/// The same for the database.
pub(crate) const DATABASE_VARIABLE: &str = "SECKILL_DATABASE";

/// One instance of the app.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct ServeArgs {
    /// Port to listen on; 0 for any that is free.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(crate) port: u16,

    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: String,

    /// Redis server that keeps the locks; without it this instance has an engine to itself.
    #[arg(long, env = REDIS_VARIABLE, hide_env_values = true, value_name = "URL")]
    pub(crate) redis: Option<String>,

    /// What the names of the locks begin with; the same for all instances.
    #[arg(long, value_name = "NAME", default_value = "seckill")]
    pub(crate) namespace: String,

    /// Database: a file of SQLite, or postgres://USER@HOST:PORT/DATABASE.
    #[arg(long, env = DATABASE_VARIABLE, hide_env_values = true, value_name = "PATH|URL", default_value = "seckill.db")]
    pub(crate) database: String,

    /// How long a start waits for the database, and a request for a connection to it.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration, overrides_with = "database_timeout")]
    pub(crate) database_timeout: Duration,

    /// Payment service, such as the one of `seckill payments`.
    #[arg(long, value_name = "URL")]
    pub(crate) payments: Option<String>,

    /// What an order is placed under, if its sale does not say.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = LockKind::Rlock)]
    pub(crate) lock: LockKind,

    /// Time an order takes between its check and its transaction.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) think: Duration,

    /// One order in N takes far longer, if its sale does not say: longer than locks without renewal
    /// live.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) stall_one_in: u32,

    /// How long a sale is kept after its end.
    #[arg(long, value_name = "TIME", default_value = "3600s", value_parser = super::long_duration)]
    pub(crate) keep: Duration,

    /// How far apart the waiting room lets its visitors in.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = super::long_duration)]
    pub(crate) pace: Duration,

    /// Takes the header `x-user-id` for a session. For tests: it lets everybody be everybody.
    #[arg(long)]
    pub(crate) trust_user_header: bool,

    /// Ends when standard input does: with the process that started it.
    #[arg(long, hide = true)]
    pub(crate) until_stdin_ends: bool,
}

/// The stand-in for the payment service.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct PaymentsArgs {
    /// Port to listen on; 0 for any that is free.
    #[arg(long, value_name = "PORT", default_value_t = 8090)]
    pub(crate) port: u16,

    /// How long a payment takes.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration)]
    pub(crate) delay: Duration,

    /// Of a hundred payments, how many fail.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) failures: u32,

    /// Ends when standard input does: with the process that started it.
    #[arg(long, hide = true)]
    pub(crate) until_stdin_ends: bool,
}
