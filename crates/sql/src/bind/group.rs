//! Grouping: what may be read above an aggregation.

use super::{Binder, Scope};
use crate::expr::{Expr, Slot};
use base::{Error, Result, SqlState};

impl Binder<'_> {
    /// Rewrites expressions above a grouping to read the keys' slots. A column that is no key is 42803, unless the keys hold
    /// its table's primary key: then it becomes a key itself. Returns the keys with their slots.
    pub(super) fn group(
        &mut self,
        keys: &mut Vec<Expr>,
        mut exprs: Vec<&mut Expr>,
        scope: &Scope<'_>,
    ) -> Result<Vec<(Slot, Expr)>> {
        let mut keyed: Vec<(Slot, Expr)> = Vec::new();
        for k in keys.drain(..) {
            match k {
                Expr::Slot(s) => keyed.push((s, Expr::Slot(s))),
                k => {
                    let s = self.slot(String::new());
                    self.used[s as usize] = true;
                    self.names[s as usize] = crate::expr::show::show(&k, &self.names);
                    keyed.push((s, k));
                }
            }
        }
        for e in &mut exprs {
            replace(e, &keyed);
        }
        let own = scope.own_slots();
        let mut loose = Vec::new();
        for e in &exprs {
            e.slots(&mut |s| {
                if own.binary_search(&s).is_ok() && !keyed.iter().any(|(k, _)| *k == s) {
                    loose.push(s);
                }
            });
        }
        loose.sort_unstable();
        loose.dedup();
        for s in loose {
            if self.depends_on_keys(s, &keyed, scope) {
                keyed.push((s, Expr::Slot(s)));
                continue;
            }
            return Err(Error::new(
                SqlState::GROUPING_ERROR,
                format!(
                    "column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                    self.names[s as usize]
                ),
            ));
        }
        Ok(keyed)
    }

    /// Whether a column's table has its primary key among the keys.
    fn depends_on_keys(&self, s: Slot, keyed: &[(Slot, Expr)], scope: &Scope<'_>) -> bool {
        scope.rels.iter().any(|r| {
            let Some(c) = r
                .columns
                .iter()
                .find(|c| matches!(c.expr, Expr::Slot(x) if x == s))
            else {
                return false;
            };
            let Some(t) = self.cx.catalog.schema.table(c.origin.0) else {
                return false;
            };
            let Some(pk) = t.primary() else { return false };
            t.def.indexes[pk].columns.iter().all(|ic| {
                r.columns.iter().any(|k| {
                    k.origin == (c.origin.0, ic.column as i16 + 1)
                        && matches!(k.expr, Expr::Slot(x) if keyed.iter().any(|(y, _)| *y == x))
                })
            })
        })
    }
}

/// Puts a key's slot wherever its expression stands; the largest match first.
fn replace(e: &mut Expr, keyed: &[(Slot, Expr)]) {
    if matches!(e, Expr::Slot(_) | Expr::Const(_)) {
        return;
    }
    if let Some((s, _)) = keyed.iter().find(|(_, k)| k.same(e)) {
        *e = Expr::Slot(*s);
        return;
    }
    e.children_mut(&mut |c| replace(c, keyed));
}
