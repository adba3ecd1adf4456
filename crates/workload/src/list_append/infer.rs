//! From a history to version orders, direct anomalies and dependency edges.
//!
//! 1. Every value has one writer. A transaction counts as *committed* when it was acknowledged, or
//!    when its outcome is unknown and an acknowledged transaction read one of its values.
//! 2. The longest list that a committed transaction read of a key is the key's version order;
//!    every other list must be a prefix of it, once the reader's own appends are cut off its end.
//! 3. Acknowledged appends that no read shows come after all that are shown; their order among
//!    each other is not known.
//!
//! Own appends: a read after own appends must end with exactly those (*internal*). What stands
//! before them is a version like any other.

use super::check::{Anomaly, Class};
use super::graph::{Graph, Kind};
use super::history::{Key, Op, Outcome, Txn, Value};
use std::collections::{BTreeSet, HashMap, HashSet};

pub struct Inferred {
    pub graph: Graph,
    pub anomalies: Vec<Anomaly>,
}

/// One list as read from outside: own appends cut off.
struct Read<'a> {
    txn: usize,
    key: Key,
    seen: &'a [Value],
    /// The reader had appended to this key before.
    after_own: bool,
}

pub fn infer(history: &[Txn]) -> Inferred {
    let mut anomalies = Vec::new();
    let mut report = |class, txns: &[usize], text: String| {
        anomalies.push(Anomaly {
            class,
            txns: txns.to_vec(),
            text,
        });
    };

    // Writers. `last` tells a transaction's final append to a key from its intermediate ones.
    let mut writer: HashMap<(Key, Value), usize> = HashMap::new();
    let mut last: HashMap<(usize, Key), Value> = HashMap::new();
    for (id, txn) in history.iter().enumerate() {
        for op in &txn.ops {
            if let Op::Append(key, value) = op {
                let before = writer.insert((*key, *value), id);
                assert!(
                    before.is_none(),
                    "value {value} was appended to {key} twice by the test"
                );
                last.insert((id, *key), *value);
            }
        }
    }

    let committed = committed(history, &writer);
    let mut reads = Vec::new();
    for (id, txn) in history.iter().enumerate().filter(|(id, _)| committed[*id]) {
        external_reads(id, txn, &mut reads, &mut report);
    }

    // Direct anomalies of each read, and the longest list per key.
    let mut order: HashMap<Key, (usize, &[Value])> = HashMap::new();
    for read in &reads {
        let mut own = HashSet::new();
        for value in read.seen {
            if !own.insert(value) {
                report(
                    Class::Duplicate,
                    &[read.txn],
                    format!("list {} holds {value} twice: {:?}", read.key, read.seen),
                );
            }
            match writer.get(&(read.key, *value)) {
                None => report(
                    Class::Garbage,
                    &[read.txn],
                    format!("list {} holds {value}, which nobody appended", read.key),
                ),
                Some(&w) if history[w].outcome == Outcome::Fail => report(
                    Class::G1a,
                    &[w, read.txn],
                    format!("list {} shows {value} of an aborted transaction", read.key),
                ),
                Some(_) => {}
            }
        }
        if let Some(value) = read.seen.last()
            && let Some(&w) = writer.get(&(read.key, *value))
            && w != read.txn
            && last[&(w, read.key)] != *value
        {
            report(
                Class::G1b,
                &[w, read.txn],
                format!(
                    "list {} ends with {value}, which its writer appended to",
                    read.key
                ),
            );
        }
        let longest = order.entry(read.key).or_insert((read.txn, read.seen));
        if longest.1.len() < read.seen.len() {
            *longest = (read.txn, read.seen);
        }
    }
    for read in &reads {
        let (longest_reader, longest) = order[&read.key];
        if !longest.starts_with(read.seen) {
            report(
                Class::Incompatible,
                &[read.txn, longest_reader],
                format!(
                    "list {}: {:?} is no prefix of {longest:?}",
                    read.key, read.seen
                ),
            );
        }
    }

    let mut graph = Graph::new(history.len());
    edges(history, &committed, &writer, &reads, &order, &mut graph);
    orders(history, &mut graph);
    Inferred { graph, anomalies }
}

/// Acknowledged, or unknown and seen by an acknowledged reader.
fn committed(history: &[Txn], writer: &HashMap<(Key, Value), usize>) -> Vec<bool> {
    let mut committed: Vec<bool> = history.iter().map(|t| t.outcome == Outcome::Ok).collect();
    for txn in history.iter().filter(|t| t.outcome == Outcome::Ok) {
        for op in &txn.ops {
            let Op::Read(key, list) = op else { continue };
            for value in list {
                if let Some(&w) = writer.get(&(*key, *value)) {
                    committed[w] |= history[w].outcome == Outcome::Unknown;
                }
            }
        }
    }
    committed
}

/// Cuts own appends off each read of a transaction; reports reads that miss them.
fn external_reads<'a>(
    id: usize,
    txn: &'a Txn,
    reads: &mut Vec<Read<'a>>,
    report: &mut impl FnMut(Class, &[usize], String),
) {
    let mut own: HashMap<Key, Vec<Value>> = HashMap::new();
    for op in &txn.ops {
        match op {
            Op::Append(key, value) => own.entry(*key).or_default().push(*value),
            Op::Read(key, list) => {
                let mine = own.get(key).map_or(&[][..], |v| v);
                match list.strip_suffix(mine) {
                    Some(seen) => {
                        reads.push(Read {
                            txn: id,
                            key: *key,
                            seen,
                            after_own: !mine.is_empty(),
                        });
                    }
                    None => report(
                        Class::Internal,
                        &[id],
                        format!("list {key} read as {list:?} after own appends {mine:?}"),
                    ),
                }
            }
        }
    }
}

fn edges(
    history: &[Txn],
    committed: &[bool],
    writer: &HashMap<(Key, Value), usize>,
    reads: &[Read<'_>],
    order: &HashMap<Key, (usize, &[Value])>,
    graph: &mut Graph,
) {
    let of = |key: Key, value: Value| writer.get(&(key, value)).copied();
    // Who appended to a key without any read showing it.
    let mut unseen: HashMap<Key, Vec<usize>> = HashMap::new();
    for (&(key, value), &w) in writer {
        let seen = order
            .get(&key)
            .is_some_and(|(_, list)| list.contains(&value));
        if committed[w] && history[w].outcome == Outcome::Ok && !seen {
            unseen.entry(key).or_default().push(w);
        }
    }
    for (&key, (_, list)) in order {
        for pair in list.windows(2) {
            if let (Some(a), Some(b)) = (of(key, pair[0]), of(key, pair[1])) {
                graph.add(a, Kind::Ww, b, key);
            }
        }
        if let Some(a) = list.last().and_then(|value| of(key, *value)) {
            for &b in unseen.get(&key).into_iter().flatten() {
                graph.add(a, Kind::Ww, b, key);
            }
        }
    }
    for read in reads {
        if let Some(w) = read.seen.last().and_then(|value| of(read.key, *value)) {
            graph.add(w, Kind::Wr, read.txn, read.key);
        }
        let list = order[&read.key].1;
        if !list.starts_with(read.seen) {
            continue;
        }
        match list.get(read.seen.len()) {
            // After own appends, the next version is the reader's own.
            Some(_) if read.after_own => {}
            Some(value) => {
                if let Some(w) = of(read.key, *value) {
                    graph.add(read.txn, Kind::Rw, w, read.key);
                }
            }
            None => {
                for &w in unseen.get(&read.key).into_iter().flatten() {
                    if !read.after_own {
                        graph.add(read.txn, Kind::Rw, w, read.key);
                    }
                }
            }
        }
    }
}

/// What time says of acknowledged transactions: of all, and of those of each site.
fn orders(history: &[Txn], graph: &mut Graph) {
    let ok = |id: &usize| history[*id].outcome == Outcome::Ok;
    let all: Vec<usize> = (0..history.len()).filter(ok).collect();
    answered_before(history, &all, Kind::Rt, graph);
    let sites: BTreeSet<usize> = all.iter().map(|id| history[*id].site).collect();
    for site in sites {
        let here = all.iter().filter(|id| history[**id].site == site);
        let here: Vec<usize> = here.copied().collect();
        answered_before(history, &here, Kind::Site, graph);
    }
}

/// Edges from each of these transactions to those that began after its answer, the implied ones left out: of those that
/// have been answered, only the ones that no other answered one follows are kept in `front`.
fn answered_before(history: &[Txn], ids: &[usize], kind: Kind, graph: &mut Graph) {
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for &id in ids {
        let txn = &history[id];
        assert!(
            txn.invoke <= txn.complete,
            "transaction {id} ends before it begins"
        );
        // At equal times beginnings come first: equal is not before.
        events.push((txn.invoke, false, id));
        events.push((txn.complete, true, id));
    }
    events.sort_unstable();
    let mut front: Vec<usize> = Vec::new();
    for (_, ends, id) in events {
        if ends {
            front.retain(|&other| history[other].complete >= history[id].invoke);
            front.push(id);
        } else {
            for &before in &front {
                graph.add(before, kind, id, 0);
            }
        }
    }
}
