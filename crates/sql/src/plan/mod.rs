//! The planner: from a logical plan to a physical one.
//!
//! [`physical`] consumes a bound statement ([`crate::logical`]) and gives the tree of [`node::Node`]s that [`crate::exec`] runs. It walks the
//! logical plan once ([`walk`]): what an operator wants of its input's rows goes down ([`Want`]), how they come goes up ([`Planned`]). `join`
//! chooses the order of relations and how each is joined, `access` an index and the part of it that is read, `shortcut` finds the plans that
//! need no operators. `asked` notes what commit can ask again, `touches` what a replica has to show first, `explain` puts a plan in words.
//!
//! The planner knows nothing of names, syntax and catalogs. Parameters are bound at execution; one plan serves any number of executions.
//!
//! Left out on purpose: statistics. The rules look at which index columns a predicate fixes, and at the tables' sizes.

mod access;
pub(crate) mod asked;
mod constants;
pub(crate) mod explain;
mod join;
pub(crate) mod node;
mod planner;
mod shortcut;
pub(crate) mod touches;
mod walk;

pub use crate::logical::{Need, OutColumn, StatementKind};
pub use node::{Prepared, Touches};
pub(crate) use planner::{DEEP, Planned, Planner, Rows, Want};

use crate::logical::{self, Statement};
use base::{Oid, Result};
use node::{Node, Plan, Root};
use std::sync::Arc;

/// Plans a bound statement. `rows` estimates the rows of a table.
pub(crate) fn physical(
    s: Statement,
    rows: Option<&Rows<'_>>,
    schema_version: u64,
    planned_for: Oid,
) -> Result<Arc<Prepared>> {
    let mut p = Planner {
        names: s.names,
        used: s.used,
        deepest: s.deepest,
        rows,
    };
    let mut alone = |l| p.plan(l, &Want::default()).map(|r| r.node);
    let mut planned = |root| {
        Ok(match root {
            logical::Root::Rows(l) => Root::Rows(alone(l)?),
            logical::Root::Insert(i) => Root::Insert(Arc::new(i.map(&mut alone)?)),
            logical::Root::Update(u) => Root::Update(Arc::new(u.map(&mut alone)?)),
            logical::Root::Delete(d) => Root::Delete(Arc::new(d.map(&mut alone)?)),
            logical::Root::Merge(m) => Root::Merge(Arc::new(m.map(&mut alone)?)),
        })
    };
    let step = |s: logical::Step| {
        Ok(node::Step {
            id: s.id,
            name: s.name,
            root: planned(s.root)?,
            slots: s.slots,
        })
    };
    let steps: Vec<node::Step> = s.steps.into_iter().map(step).collect::<Result<_>>()?;
    let root = planned(s.root)?;
    let subplans: Vec<Node> = s.subqueries.into_iter().map(alone).collect::<Result<_>>()?;
    let (point, short) = match &root {
        Root::Rows(n) if !s.locks_rows && steps.is_empty() => (
            shortcut::point(n, &s.outputs),
            shortcut::short(n, &s.outputs),
        ),
        _ => (None, None),
    };
    Ok(Arc::new(Prepared {
        touches: Default::default(),
        uses: Default::default(),
        params: s.params,
        columns: s.columns,
        kind: s.kind,
        read_only: !s.locks_rows && !s.writes,
        locks_rows: s.locks_rows,
        schema_version,
        privileges: s.privileges,
        schemas: s.schemas,
        planned_for,
        plan: Plan {
            steps,
            root,
            subplans,
            looks_up: s.looks_up,
            by_definitions: s.by_definitions,
            by_numbers: s.by_numbers,
            sequences: s.sequences,
            ctes: s.ctes,
            slots: p.names.len(),
            names: p.names,
            outputs: s.outputs,
            point,
            short,
            deep: s.deepest > DEEP,
        },
    }))
}
