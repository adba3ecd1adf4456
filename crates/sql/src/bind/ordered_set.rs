//! `percentile_cont(0.5) WITHIN GROUP (ORDER BY x)`: an aggregate whose last argument is the sort key.
//!
//! Left out on purpose (0A000): hypothetical rows, `rank(…) WITHIN GROUP`; columns as direct arguments.

use super::call::sort_key;
use super::expr::Env;
use super::{Binder, Bound};
use crate::expr::Expr;
use crate::functions::{Kind, ORDERED_SETS, lookup_function};
use crate::logical::{Agg, SortKey};
use base::{Error, Result, SqlState, Type};
use sqlparser::ast::{self, Expr as Ast};

/// Whether a name is such an aggregate's.
pub(super) fn is_ordered_set(name: &str) -> bool {
    ORDERED_SETS.contains(&name)
}

fn wrong(what: String) -> Error {
    Error::new(SqlState::WRONG_OBJECT_TYPE, what)
}

impl Binder<'_> {
    /// A call with WITHIN GROUP, or of an aggregate that needs it.
    pub(super) fn ordered_set(
        &mut self,
        name: &str,
        f: &ast::Function,
        args: &[&Ast],
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        self.may_aggregate(env)?;
        let mut inner = env.argument();
        let mut bound = Vec::new();
        for e in args {
            let b = self.expr(e, &mut inner)?;
            bound.push(b);
        }
        for o in &f.within_group {
            let b = self.expr(&o.expr, &mut inner)?;
            bound.push(self.settle(b)?);
        }
        let filter = match &f.filter {
            Some(e) => {
                inner.clause = "FILTER";
                let b = self.expr(e, &mut inner)?;
                Some(self.condition(b, "FILTER")?)
            }
            None => None,
        };
        let types: Vec<Type> = bound.iter().map(|b| b.ty.ty).collect();
        let found = lookup_function(name, &types)?;
        if f.within_group.is_empty() {
            return Err(wrong(format!(
                "WITHIN GROUP is required for ordered-set aggregate {name}"
            )));
        }
        if matches!(name, "rank" | "dense_rank" | "percent_rank" | "cume_dist") {
            return Err(Error::unsupported(format!("{name} WITHIN GROUP")));
        }
        if !is_ordered_set(name) {
            return Err(wrong(format!(
                "{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP"
            )));
        }
        if f.over.is_some() {
            let what = format!("OVER is not supported for ordered-set aggregate {name}");
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what));
        }
        let Kind::Aggregate(id) = found.kind else {
            return Err(wrong(format!("{name} is not an aggregate function")));
        };
        let exprs = self.arguments(&found, bound)?;
        let own = env.scope.own_slots();
        let direct = &exprs[..args.len()];
        let reads = |e: &Expr| {
            let mut hit = false;
            e.slots(&mut |s| hit |= own.binary_search(&s).is_ok());
            hit
        };
        if direct.iter().any(reads) {
            return Err(Error::unsupported(format!(
                "a column as a direct argument of {name}"
            )));
        }
        let mut order: Vec<SortKey> = vec![];
        for (o, e) in f.within_group.iter().zip(&exprs[args.len()..]) {
            order.push(sort_key(e.clone(), &o.options)?);
        }
        let slot = self.slot(format!("{name}(?)"));
        self.used[slot as usize] = true;
        let agg = Agg {
            slot,
            id,
            args: exprs,
            types: found.args.clone(),
            distinct: false,
            filter,
            order,
        };
        env.aggs.get_or_insert_default().push(agg);
        Ok(Bound::new(Expr::Slot(slot), found.ret))
    }
}
