//! The conditions of a scan as something that commit can ask again of a row (`txn::RowFilter`): precision locking.
//!
//! A serializable transaction that scanned a range does not lose to a change of a row that its conditions take neither before nor
//! after (docs/decisions/0020). What is asked then must be what the scan asked, long after its statement and without its session:
//!
//! - *The first* conditions that qualify, up to one that does not. Conditions are asked in order, and one that is false ends it. So a row that
//!   one of these refuses was refused here, too, and raised no error before; of conditions behind one that is left out that is not known.
//! - A condition qualifies that reads columns of the row, constants, parameters, and columns of relations that stood still while
//!   the scan ran, through immutable functions, operators and casts. What is computed once per execution (`now()`, a cast of a
//!   parameter) is computed when the scan begins, whatever it is made of. Subqueries do not qualify.
//! - An error is a yes: the row would have raised it.
//!
//! Planning notes which conditions these are ([`crate::plan::asked`]); a scan takes the values along that they need ([`Filter`]), where the transaction
//! keeps what it reads at all. Slots are made at the first question, which most filters never hear.
//!
//! Left out on purpose: reads of rows by key, which are compared as they are; scans of one row of a unique index, which end at it whether or
//! not they take it, so that another row may come in its place where nobody looked.

#[cfg(test)]
mod tests;

use super::scan::{decode, holds};
use super::{Rt, State};
use crate::catalog::NoFacts;
use crate::expr::{Expr, Slot};
use crate::functions::{EvalContext, NoSession};
use crate::plan::asked::Asked;
use crate::plan::node::{Plan, Scan};
use crate::types::OutputSettings;
use base::{RowRef, Value};
use parking_lot::Mutex;
use std::sync::{Arc, LazyLock};
use txn::RowFilter;

/// The conditions of one scan, with the values that they were asked with.
struct Filter {
    node: Arc<Scan>,
    settings: OutputSettings,
    params: Vec<Value>,
    taken: Vec<(Slot, Value)>,
    /// Slots of the whole statement.
    slots: usize,
    state: Mutex<Option<State>>,
}

/// The filter of a scan that begins now; none where nothing can be asked later.
pub fn filter(node: &Arc<Scan>, rt: &mut Rt<'_>) -> Option<Arc<dyn RowFilter>> {
    let asked = node.asked.as_ref()?;
    let mut computed = true;
    if !asked.once.is_empty() {
        let conditions = &node.filter[..asked.conditions];
        conditions
            .iter()
            .for_each(|c| compute_once(c, rt, &mut computed));
    }
    if !computed {
        return None;
    }
    let st = &rt.st;
    let params = asked.params.iter().max().map_or(0, |most| most + 1);
    let mut params = vec![Value::Null; params];
    for &p in &asked.params {
        params[p] = st.params[p].clone();
    }
    let taken = asked.given.iter().chain(&asked.once);
    Some(Arc::new(Filter {
        taken: taken.map(|&s| (s, st.env[s as usize].clone())).collect(),
        node: node.clone(),
        settings: rt.cx.settings.clone(),
        params,
        slots: rt.plan.slots,
        state: Mutex::new(None),
    }))
}

/// Computes what is computed once. An error is the scan's to raise, when a row gets there.
fn compute_once(e: &Expr, rt: &mut Rt<'_>, computed: &mut bool) {
    match e {
        Expr::Once(..) => *computed = *computed && e.eval(rt).is_ok(),
        e => e.children(&mut |c| compute_once(c, rt, computed)),
    }
}

impl Filter {
    fn state(&self, asked: &Asked) -> State {
        let mut st = State::unprepared(self.params.clone());
        st.env.resize(self.slots, Value::Null);
        st.once.resize(self.slots, false);
        for (s, v) in &self.taken {
            st.env[*s as usize] = v.clone();
        }
        for s in &asked.once {
            st.once[*s as usize] = true;
        }
        st
    }
}

impl RowFilter for Filter {
    fn takes(&self, row: RowRef<'_>) -> bool {
        static NOTHING: LazyLock<Plan> = LazyLock::new(|| Plan::bare(0));
        let asked = self.node.asked.as_ref().expect("it was made of this");
        let mut state = self.state.lock();
        let st = state.get_or_insert_with(|| self.state(asked));
        decode(&row, &asked.columns, &mut st.env);
        let mut rt = Rt {
            txn: None,
            cx: EvalContext {
                settings: &self.settings,
                session: &NoSession,
            },
            facts: &NoFacts,
            st,
            plan: &NOTHING,
        };
        holds(&self.node.filter[..asked.conditions], &mut rt).unwrap_or(true)
    }
}
