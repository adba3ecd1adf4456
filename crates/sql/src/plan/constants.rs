//! Constants by way of equalities: `a = 1 AND a = b` says `b = 1`, too.
//!
//! ```text
//! c.id = $1 AND f.id = $2 AND c.id = r.c AND f.id = r.f   also   r.c = $1 AND r.f = $2
//! ```
//! A join of two relations does without: the second is found by the first. Where a third one is tied to both, the index that finds it may begin with
//! the column of the one that is not joined yet. The equalities stay, so the order of the joins is chosen as before.
//!
//! Left out on purpose: expressions that are no columns, and constants that have to be computed.

use crate::expr::{CmpOp, Expr, Slot};
use std::collections::{HashMap, HashSet};

/// Adds to the conditions of an inner join what equalities say of columns that no constant fixes yet.
pub(super) fn spread(conditions: &mut Vec<Expr>) {
    let mut fixed: Vec<(Slot, Expr)> = Vec::new();
    let mut known: HashSet<Slot> = HashSet::new();
    let mut same: HashMap<Slot, Vec<Slot>> = HashMap::new();
    for c in &*conditions {
        let Expr::Compare(CmpOp::Eq, ab) = c else {
            continue;
        };
        match &**ab {
            (Expr::Slot(a), Expr::Slot(b)) => {
                same.entry(*a).or_default().push(*b);
                same.entry(*b).or_default().push(*a);
            }
            (Expr::Slot(s), e @ (Expr::Const(_) | Expr::Param(_)))
            | (e @ (Expr::Const(_) | Expr::Param(_)), Expr::Slot(s))
                if known.insert(*s) =>
            {
                fixed.push((*s, e.clone()));
            }
            _ => {}
        }
    }
    while let Some((slot, e)) = fixed.pop() {
        for other in same.remove(&slot).unwrap_or_default() {
            if known.insert(other) {
                let both = (Expr::Slot(other), e.clone());
                conditions.push(Expr::Compare(CmpOp::Eq, Box::new(both)));
                fixed.push((other, e.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eq(a: Expr, b: Expr) -> Expr {
        Expr::Compare(CmpOp::Eq, Box::new((a, b)))
    }

    #[test]
    fn a_constant_goes_along_a_chain_of_equalities_once() {
        let slot = Expr::Slot;
        let mut all = vec![
            eq(slot(1), slot(2)),
            eq(Expr::Param(0), slot(1)),
            eq(slot(3), slot(2)),
            eq(slot(3), slot(1)),
            eq(slot(8), slot(9)),
            Expr::Compare(CmpOp::Lt, Box::new((slot(3), slot(7)))),
        ];
        let before = all.len();
        spread(&mut all);
        let mut added: Vec<String> = all[before..].iter().map(|e| format!("{e:?}")).collect();
        added.sort();
        let wanted = [2, 3].map(|s| format!("{:?}", eq(slot(s), Expr::Param(0))));
        assert_eq!(added, wanted);
    }
}
