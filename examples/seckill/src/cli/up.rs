//! What several instances with a front are made of.

use std::time::Duration;

use clap::Args;

use super::serve::{DATABASE_VARIABLE, REDIS_VARIABLE};
use super::{duration, of_nothing};
use crate::service::LockKind;

/// Several instances behind one port.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct UpArgs {
    /// Instances, each a process of its own.
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) instances: u32,

    /// Port of the front; 0 for any that is free.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(crate) port: u16,

    /// Redis server that keeps the locks; without it an embedded engine does, on a port of its own.
    #[arg(long, env = REDIS_VARIABLE, hide_env_values = true, value_name = "URL")]
    pub(crate) redis: Option<String>,

    /// Database: a file of SQLite, or postgres://USER@HOST:PORT/DATABASE.
    #[arg(long, env = DATABASE_VARIABLE, hide_env_values = true, value_name = "PATH|URL", default_value = "seckill.db")]
    pub(crate) database: String,

    /// What an order is placed under, if its sale does not say.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = LockKind::Rlock)]
    pub(crate) lock: LockKind,

    /// Time an order takes between its check and its transaction.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = duration)]
    pub(crate) think: Duration,

    /// One order in N takes far longer, if its sale does not say: longer than locks without renewal
    /// live.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) stall_one_in: u32,

    /// Payment service; without it one is started that stands in for it.
    #[arg(long, value_name = "URL", conflicts_with_all = ["payment_delay", "payment_failures"])]
    pub(crate) payments: Option<String>,

    /// How long a payment takes.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration)]
    pub(crate) payment_delay: Duration,

    /// Of a hundred payments, how many fail.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) payment_failures: u32,

    /// Lets the page and `rush --fault` break things: kill an instance, pause or restart Redis.
    #[arg(long)]
    pub(crate) chaos: bool,

    /// Has the instances log errors alone, unless `RUST_LOG` says more.
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl Default for UpArgs {
    fn default() -> Self {
        of_nothing()
    }
}
