//! Which master has which slots, as the nodes say (CLUSTER SLOTS, CLUSTER INFO).

use crate::connection::address::Address;
use crate::wire::{Slot, Value};

/// The answer of one node about the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) masters: Vec<Address>,
    pub(super) replicas: Vec<Address>,
    /// The master of each slot, as an index; [`NOBODY`]: there is none.
    pub(super) owners: Vec<u16>,
    /// The epoch of the cluster, which grows with every change; `None` if an ACL forbids it.
    pub(super) epoch: Option<u64>,
    /// Whether the cluster serves its slots, as far as this user may know.
    pub(super) serves: bool,
}

/// More masters, or replicas, than a cluster can have are not kept.
pub(super) const MOST_NODES: usize = 1000;
/// No master has the slot.
pub(super) const NOBODY: u16 = u16::MAX;

impl Layout {
    /// `asked`: the address of the node that has answered.
    pub(super) fn of(slots: &Value, info: &Value, asked: &Address) -> Option<Self> {
        let Value::List(ranges) = slots else {
            return None;
        };
        let mut layout = Self {
            masters: Vec::new(),
            replicas: Vec::new(),
            owners: vec![NOBODY; usize::from(Slot::COUNT)],
            epoch: epoch_of(info),
            serves: !info
                .text()
                .is_some_and(|info| info.contains("cluster_state:fail")),
        };
        for range in ranges {
            let Value::List(parts) = range else {
                return None;
            };
            let [first, last, master, replicas @ ..] = &parts[..] else {
                return None;
            };
            let (first, last) = (number(first)?, number(last)?);
            let owned = layout.owners.get_mut(first..=last)?;
            let master = address(master, asked)?;
            let at = position(&mut layout.masters, master)?;
            owned.fill(u16::try_from(at).ok()?);
            for replica in replicas {
                let replica = address(replica, asked)?;
                position(&mut layout.replicas, replica)?;
            }
        }
        Some(layout)
    }

    /// How many slots have a master.
    pub(super) fn covered(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != NOBODY).count()
    }
}

/// `None`: there are too many.
fn position(list: &mut Vec<Address>, address: Address) -> Option<usize> {
    let known = list.iter().position(|known| *known == address);
    if known.is_none() {
        list.push(address);
    }
    known.or_else(|| (list.len() <= MOST_NODES).then(|| list.len() - 1))
}

fn number(value: &Value) -> Option<usize> {
    match value {
        Value::Int(number) => usize::try_from(*number).ok(),
        _ => None,
    }
}

/// A node: its host, its port, and other fields.
fn address(node: &Value, asked: &Address) -> Option<Address> {
    let Value::List(parts) = node else {
        return None;
    };
    let host = parts.first().and_then(Value::text).unwrap_or_default();
    let port = u16::try_from(number(parts.get(1)?)?).ok()?;
    asked.announced(&host, port)
}

/// The number of the cluster's last change that this node knows.
fn epoch_of(info: &Value) -> Option<u64> {
    let text = info.text()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, epoch) = fields.find(|(name, _)| *name == "cluster_current_epoch")?;
    epoch.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Text(text.into())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::List(vec![host, Value::Int(port), bulk("id")])
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        let ends = vec![Value::Int(first), Value::Int(last)];
        Value::List([ends, nodes].concat())
    }

    #[test]
    fn slots_have_the_masters_that_are_named_first() {
        let slots = Value::List(vec![
            range(0, 99, vec![node(bulk("a"), 1), node(bulk("b"), 2)]),
            range(200, 16383, vec![node(bulk("c"), 3)]),
            range(100, 100, vec![node(bulk("a"), 1)]),
        ]);
        let info = bulk("cluster_state:ok\r\ncluster_current_epoch:7\r\n");
        let layout = Layout::of(&slots, &info, &Address::tcp("asked", 9)).unwrap();
        assert_eq!(layout.masters, [Address::tcp("a", 1), Address::tcp("c", 3)]);
        assert_eq!(layout.replicas, [Address::tcp("b", 2)]);
        let at = [0, 99, 100, 101, 200, 16383].map(|slot: usize| layout.owners[slot]);
        assert_eq!(at, [0, 0, 0, NOBODY, 1, 1]);
        assert_eq!((layout.epoch, layout.covered()), (Some(7), 101 + 16184));
    }

    #[test]
    fn a_node_without_a_host_is_where_the_asked_one_is() {
        for host in [bulk(""), bulk("?"), Value::Nil] {
            let slots = Value::List(vec![range(0, 16383, vec![node(host, 7001)])]);
            let layout = Layout::of(&slots, &Value::Nil, &Address::tcp("asked", 9)).unwrap();
            assert_eq!(layout.masters, [Address::tcp("asked", 7001)]);
        }
    }

    /// A layout with this many masters.
    fn many(count: i64) -> Value {
        let one = |slot| range(slot, slot, vec![node(bulk("a"), slot + 1)]);
        Value::List((0..count).map(one).collect())
    }

    #[test]
    fn what_is_no_layout_is_refused() {
        let bad = [
            Value::Nil,
            Value::List(vec![Value::Int(1)]),
            Value::List(vec![range(0, 16384, vec![node(bulk("a"), 1)])]),
            Value::List(vec![range(9, 3, vec![node(bulk("a"), 1)])]),
            Value::List(vec![range(-1, 3, vec![node(bulk("a"), 1)])]),
            Value::List(vec![range(0, 3, vec![node(bulk("a"), 70000)])]),
            Value::List(vec![range(0, 3, vec![])]),
            Value::List(vec![range(0, 3, vec![node(bulk(&"a".repeat(256)), 1)])]),
            many(1001),
        ];
        let most = Layout::of(&many(1000), &Value::Nil, &Address::tcp("asked", 9)).unwrap();
        assert_eq!(most.masters.len(), 1000);
        for slots in bad {
            let layout = Layout::of(&slots, &Value::Nil, &Address::tcp("asked", 9));
            assert_eq!(layout, None, "{slots:?}");
        }
    }
}
