//! Asking nodes for the layout of the cluster.
//!
//! Several are asked at the same time, and the answer with the highest epoch counts: a node that
//! was cut off from the others does not know of a failover.

use std::io;
use std::time::Duration;

use super::layout::Layout;
use crate::connection::address::Address;
use crate::connection::dial::Dialer;
use crate::connection::fault::Fault;
use crate::connection::server::{NOT_A_NODE, all_failed, ask, gather};
use crate::wire::Value;

/// The number of nodes that are asked at the same time.
pub(super) const TOGETHER: usize = 4;

/// Asks a group of nodes, and the next one if none of them answers. `reached`: the cluster was reached
/// before, so the configuration is, or was, correct.
pub(super) async fn ask_for_layout(
    dialer: &Dialer,
    groups: &[Vec<Address>],
    reached: bool,
    within: Duration,
) -> Result<Layout, Fault> {
    let share = match groups.len() {
        0 | 1 => within,
        _ => within / 2,
    };
    let mut failed = Vec::new();
    for group in groups {
        let asked = group.iter().map(|node| {
            let told = question(dialer, node, reached, share);
            (node.place(), told)
        });
        // Waits a little for the others: one may know more than another.
        let found = gather(asked, share, |told: &[Layout]| !told.is_empty());
        let (answers, faults) = found.await;
        // The first of the best answers.
        let best = |told: &Layout| (told.epoch, told.covered());
        if let Some(layout) = answers.into_iter().rev().max_by_key(best) {
            return Ok(layout);
        }
        failed.extend(faults);
    }
    Err(all_failed(
        "no node of the cluster answers",
        &failed,
        reached,
    ))
}

async fn question(
    dialer: &Dialer,
    node: &Address,
    reached: bool,
    within: Duration,
) -> Result<Layout, Fault> {
    let (mut commands, _) = dialer.login().await?;
    let needed = commands.len();
    for subcommand in ["SLOTS", "INFO"] {
        commands.cmd("CLUSTER").arg(subcommand);
    }
    let target = Some(node.clone());
    let open = |target| async move { dialer.dial(&target, within).await };
    let (_, replies) = ask(&commands, needed, target, reached, open).await?;
    let (logged_in, told) = replies.split_at(needed);
    for reply in logged_in {
        if let Value::Error(error) = reply {
            return Err(Fault::from_server(error.clone()).while_dialing());
        }
    }
    let [slots, info] = told else {
        return Err(Fault::not_redis());
    };
    if let Value::Error(error) = slots {
        return Err(match error.detail().contains("cluster support disabled") {
            true => Fault::misconfigured(io::Error::other(NOT_A_NODE)),
            false => Fault::from_server(error.clone()).while_dialing(),
        });
    }
    let odd =
        "its CLUSTER SLOTS makes no sense, or names more than 1 000 nodes, or what is no host";
    let layout = Layout::of(slots, info, node).ok_or_else(|| Fault::passing(odd.into()))?;
    match layout.masters.is_empty() {
        false => Ok(layout),
        true => Err(Fault::passing("no master has any slot".into())),
    }
}
