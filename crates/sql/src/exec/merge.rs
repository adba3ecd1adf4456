//! MERGE. All rows are paired and all actions are computed before the first one is done, so that the statement does not see its own writes.
//!
//! The actions are done in the order of the pairs. A target row that a second pair would change is 21000. Split columns are written by their
//! values: the row that an action sees is the one that it changes.

use super::Rt;
use super::dml::open;
use super::scan::holds;
use super::simple::eval_all;
use crate::plan::node::{ColumnSource, Merge, MergeAction};
use crate::types::value_bytes;
use base::{Error, SqlState, Value};
use foldhash::HashSet;
use txn::Result;

/// What is done with a row.
#[derive(Clone)]
pub(super) enum Action {
    Update(Box<[u8]>, Vec<Value>),
    Delete(Box<[u8]>),
    Insert(Vec<Value>),
}

impl Action {
    fn bytes(&self) -> usize {
        let row = |r: &[Value]| r.iter().map(value_bytes).sum::<usize>();
        64 + match self {
            Action::Update(k, r) => k.len() + row(r),
            Action::Delete(k) => k.len(),
            Action::Insert(r) => row(r),
        }
    }
}

/// Runs the statement: how many rows were inserted, updated or deleted.
pub fn run(m: &Merge, rt: &mut Rt<'_>) -> Result<u64> {
    let actions = read(m, &mut HashSet::default(), rt)?;
    apply(m, actions, rt)
}

/// The actions of all pairs, in order.
///
/// `claimed`: keys of the rows that a part of a WITH before this one changes; they are left alone.
pub(super) fn read(
    m: &Merge,
    claimed: &mut HashSet<Box<[u8]>>,
    rt: &mut Rt<'_>,
) -> Result<Vec<Action>> {
    let mut op = open(&m.input, 1, rt)?;
    let mut changed: HashSet<Box<[u8]>> = HashSet::default();
    let mut actions = Vec::new();
    while op.next(rt)? {
        let key = match &rt.st.env[m.key_slot as usize] {
            Value::Bytea(k) => Some(k.clone()),
            _ => None,
        };
        let Some(action) = action(m, key.as_deref(), rt)? else {
            continue;
        };
        if let Some(key) = key {
            if !changed.insert(key.clone()) {
                return Err(second_time().into());
            }
            if !claimed.insert(key) {
                continue;
            }
        }
        rt.charge(action.bytes())?;
        actions.push(action);
    }
    Ok(actions)
}

/// Does them; how many rows were inserted, updated or deleted.
pub(super) fn apply(m: &Merge, actions: Vec<Action>, rt: &mut Rt<'_>) -> Result<u64> {
    let n = actions.len() as u64;
    for action in actions {
        rt.tick()?;
        let txn = rt.txn()?;
        match action {
            Action::Update(key, row) => {
                txn.update(&m.handle, &key, &row)?;
            }
            Action::Delete(key) => {
                txn.delete(&m.handle, &key)?;
            }
            Action::Insert(row) => txn.insert(&m.handle, &row)?,
        }
    }
    Ok(n)
}

/// What the first clause that fits says about the pair in the slots; `key` is the target row's.
fn action(m: &Merge, key: Option<&[u8]>, rt: &mut Rt<'_>) -> Result<Option<Action>> {
    for clause in m.clauses.iter().filter(|c| c.matched == key.is_some()) {
        if !holds(&clause.condition, rt)? {
            continue;
        }
        let target = || key.expect("such a clause is about a match").into();
        return Ok(match &clause.action {
            MergeAction::Nothing => None,
            MergeAction::Delete => Some(Action::Delete(target())),
            MergeAction::Update(columns) => {
                let mut row = Vec::with_capacity(columns.len());
                for (c, &slot) in columns.iter().zip(&m.row) {
                    row.push(match c {
                        ColumnSource::Keep => rt.st.env[slot as usize].clone(),
                        ColumnSource::Expr(e) => e.eval(rt)?,
                    });
                }
                Some(Action::Update(target(), row))
            }
            MergeAction::Insert(columns) => Some(Action::Insert(eval_all(columns, rt)?)),
        });
    }
    Ok(None)
}

fn second_time() -> Error {
    Error::new(
        SqlState::CARDINALITY_VIOLATION,
        "MERGE command cannot affect row a second time",
    )
    .hint("Ensure that not more than one source row matches any one target row.")
}
