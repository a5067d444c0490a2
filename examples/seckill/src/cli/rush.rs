//! What a rush is made of.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::{REDIS_VARIABLE, duration, of_nothing};
use crate::service::LockKind;

/// The size and shape of one rush.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct RushArgs {
    /// Users who rush, each of whom may have one voucher.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) users: u32,

    /// Vouchers for sale.
    #[arg(long, value_name = "M", default_value_t = 200)]
    pub(crate) stock: u32,

    /// App instances, each with its own lock client and its own database pool.
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) instances: u32,

    /// Requests of each user, which start together on different instances.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) requests_per_user: u32,

    /// Requests in flight over all instances.
    #[arg(long, value_name = "C", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) concurrency: u32,

    /// Redis server that keeps the locks, or else the one that SECKILL_REDIS names; without both the instances share an
    /// engine in this process.
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,

    /// What an order is placed under.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = LockKind::Rlock)]
    pub(crate) lock: LockKind,

    /// One order in N takes far longer than `--think`: longer than locks without renewal live.
    /// Over HTTP the instances decide if this does not.
    #[arg(long, value_name = "N")]
    pub(crate) stall_one_in: Option<u32>,

    /// Prints the summary as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    /// Time an order takes between its check and its transaction.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = duration)]
    pub(crate) think: Duration,

    /// Instances that serve already, or their front: the rush goes there and starts none.
    #[arg(long, value_name = "URL", value_delimiter = ',', num_args = 1..,
          conflicts_with_all = ["instances", "redis", "think"])]
    pub(crate) http: Vec<String>,

    /// What is broken on the way, and how long after the first answer: kill@500ms, pause@1s,
    /// restart-with-data@1s, restart-without-data@1s. The first URL is that of an `up --chaos`.
    #[arg(long, value_name = "FAULT@TIME", requires = "http")]
    pub(crate) fault: Option<FaultAt>,
}

/// Something that is broken some time after the first answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultAt {
    pub(crate) name: String,
    pub(crate) at: Duration,
}

impl FromStr for FaultAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, at) = text
            .split_once('@')
            .ok_or("expected a fault and a time, such as kill@500ms")?;
        Ok(Self {
            name: name.to_owned(),
            at: duration(at)?,
        })
    }
}

impl fmt::Display for FaultAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{:?}", self.name, self.at)
    }
}

impl Default for RushArgs {
    fn default() -> Self {
        of_nothing()
    }
}

impl RushArgs {
    /// Adds the Redis that the environment names. Clap would take it for a flag, which `--http` refuses.
    pub(crate) fn with_environment(mut self) -> Self {
        if self.redis.is_none() && self.http.is_empty() {
            self.redis = std::env::var(REDIS_VARIABLE).ok();
        }
        self
    }

    /// Checks what no single flag can know about itself.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.requests_per_user > self.concurrency {
            return Err(format!(
                "--concurrency {} is below --requests-per-user {}: the requests of one user start \
                 together, so all of them must fit",
                self.concurrency, self.requests_per_user,
            ));
        }
        Ok(())
    }

    /// Requests of all users.
    pub(crate) fn requests(&self) -> u64 {
        u64::from(self.users) * u64::from(self.requests_per_user)
    }
}
