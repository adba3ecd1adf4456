//! Statements that write, those with a WITH that changes data among them.
//!
//! All parts of such a statement see what was there before it. So each part is read in order, its new rows and RETURNING are kept, and the
//! parts behind it read these. When the last one was read, the writes are done in the same order. A row that two parts would change is changed
//! by the first. What an INSERT with ON CONFLICT gives back is not known before it is done: it is done on trial behind the writes of the parts before it,
//! undone, and done again with the others.
//!
//! Left out on purpose: deltas of split columns, which a statement with such a WITH writes exactly.

use super::build::build;
use super::dml;
use super::insert;
use super::merge;
use super::state::RowStore;
use super::{Operator, Rt};
use crate::expr::Slot;
use crate::plan::node::{Delete, Insert, Merge, Node, Plan, Root, Update};
use base::{Error, RelId};
use foldhash::{HashMap, HashSet};
use std::sync::Arc;
use txn::{Result, Stop};

/// Keys of rows.
type Keys = HashSet<Box<[u8]>>;

/// Runs the statement: the rows that it gives, and how many its root has written.
pub(super) fn run(plan: &Plan, rt: &mut Rt<'_>) -> Result<(RowStore, u64)> {
    match &plan.root {
        _ if !plan.steps.is_empty() => stepwise(plan, rt),
        Root::Insert(i) => insert::run(i, rt),
        Root::Update(u) => dml::update(u, rt),
        Root::Delete(d) => dml::delete(d, rt),
        Root::Merge(m) => Ok((RowStore::new(0), merge::run(m, rt)?)),
        Root::Rows(_) | Root::Explain { .. } => {
            Err(Error::internal("a statement that writes nothing").into())
        }
    }
}

/// A write that was read and waits for the others.
enum Pending<'p> {
    Insert {
        node: &'p Insert,
        new: insert::New,
        /// How many rows it wrote on trial.
        tried: Option<u64>,
    },
    Update(&'p Update, dml::New),
    Delete(&'p Delete, Vec<Box<[u8]>>),
    Merge(&'p Merge, Vec<merge::Action>),
}

impl Pending<'_> {
    /// Does it for a trial, and stays.
    fn try_out(&self, rt: &mut Rt<'_>) -> Result<()> {
        match self {
            Pending::Insert { node, new, .. } => insert::put_all(node, new.clone(), None, rt)?,
            Pending::Update(u, new) => dml::write_all(u, new, rt)?,
            Pending::Delete(d, keys) => dml::delete_all(d, keys, rt)?,
            Pending::Merge(m, actions) => merge::apply(m, actions.clone(), rt)?,
        };
        Ok(())
    }

    /// Does it; how many rows were written.
    fn apply(self, out: Option<&mut RowStore>, rt: &mut Rt<'_>) -> Result<u64> {
        match self {
            Pending::Insert { node, new, tried } => {
                let n = insert::put_all(node, new, out, rt)?;
                match tried {
                    Some(before) if before != n => Err(Stop::Restart),
                    _ => Ok(n),
                }
            }
            Pending::Update(u, new) => dml::write_all(u, &new, rt),
            Pending::Delete(d, keys) => dml::delete_all(d, &keys, rt),
            Pending::Merge(m, actions) => merge::apply(m, actions, rt),
        }
    }
}

fn stepwise(plan: &Plan, rt: &mut Rt<'_>) -> Result<(RowStore, u64)> {
    let mut claimed: HashMap<RelId, Keys> = HashMap::default();
    let mut pending: Vec<Pending<'_>> = Vec::new();
    for (i, step) in plan.steps.iter().enumerate() {
        let number = |s: &super::Stats| s.starts[plan.subplans.len() + i];
        let first = rt.st.stats.as_ref().map_or(0, number);
        let rows = match &step.root {
            Root::Rows(n) => all(n, &step.slots, first, rt)?,
            root => {
                let (mut rows, mut write) = read(root, first + 1, &mut claimed, &pending, rt)?;
                if let Pending::Insert { node, new, tried } = &mut write {
                    let before = |rt: &mut Rt<'_>| pending.iter().try_for_each(|p| p.try_out(rt));
                    (rows, *tried) = insert::returned(node, new, before, rt)?;
                }
                pending.push(write);
                rows
            }
        };
        rt.st.ctes[step.id].rows = Some(Arc::new(rows));
    }
    let (mut rows, main) = match &plan.root {
        Root::Rows(n) => (all(n, &plan.outputs, 0, rt)?, None),
        root => {
            let (rows, write) = read(root, 1, &mut claimed, &pending, rt)?;
            (rows, Some(write))
        }
    };
    for write in pending {
        write.apply(None, rt)?;
    }
    let n = match main {
        Some(write) => write.apply(Some(&mut rows), rt)?,
        None => 0,
    };
    Ok((rows, n))
}

/// All rows of a part that only reads.
fn all(node: &Node, slots: &[Slot], first: usize, rt: &mut Rt<'_>) -> Result<RowStore> {
    let mut first = rt.st.stats.is_some().then_some(first);
    let mut op: Box<dyn Operator> = build(node, &mut first);
    op.open(rt)?;
    let mut rows = RowStore::new(slots.len());
    while op.next(rt)? {
        rows.push(rt, slots)?;
    }
    Ok(rows)
}

/// Reads what a part will write, behind what is pending. The rows of RETURNING are those of an UPDATE or DELETE; an INSERT's come with its rows.
fn read<'p>(
    root: &'p Root,
    first: usize,
    claimed: &mut HashMap<RelId, Keys>,
    pending: &[Pending<'p>],
    rt: &mut Rt<'_>,
) -> Result<(RowStore, Pending<'p>)> {
    Ok(match root {
        Root::Insert(node) => {
            let before = |rt: &mut Rt<'_>| pending.iter().try_for_each(|p| p.try_out(rt));
            let new = insert::read(node, first, before, rt)?;
            let tried = None;
            let out = RowStore::new(node.returning.as_ref().map_or(0, |r| r.outputs.len()));
            (out, Pending::Insert { node, new, tried })
        }
        Root::Update(u) => {
            let seen = claimed.entry(u.handle.storage.id).or_default();
            let (new, rows) = dml::read_update(u, first, Some(seen), rt)?;
            (rows, Pending::Update(u, new))
        }
        Root::Delete(d) => {
            let seen = claimed.entry(d.handle.storage.id).or_default();
            let (keys, rows) = dml::read_delete(d, first, Some(seen), rt)?;
            (rows, Pending::Delete(d, keys))
        }
        Root::Merge(m) => {
            let seen = claimed.entry(m.handle.storage.id).or_default();
            let actions = merge::read(m, seen, rt)?;
            (RowStore::new(0), Pending::Merge(m, actions))
        }
        Root::Rows(_) | Root::Explain { .. } => {
            return Err(Error::internal("a part of a WITH that writes nothing").into());
        }
    })
}
