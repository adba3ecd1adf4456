//! Grouping: GROUP BY's keys and sets of keys, and what may be read above an aggregation.

use super::expr::Env;
use super::query::ordinal;
use super::target::Target;
use super::{Binder, Bound, Scope};
use crate::catalog::fold;
use crate::expr::{Expr, Slot};
use crate::logical::{GroupingSets, SetCall};
use base::{Error, Result, SqlState, Type};
use sqlparser::ast::{self, Expr as Ast, GroupByExpr};

/// Most sets of keys, and most elements of a CUBE, as PostgreSQL has it.
const MAX_SETS: usize = 4096;
const MAX_CUBE: usize = 12;

/// GROUP BY, bound.
#[derive(Default)]
pub(super) struct Keys {
    pub exprs: Vec<Expr>,
    /// Sets of keys, where GROUP BY speaks of some.
    pub sets: Option<Vec<Vec<usize>>>,
}

/// What GROUP BY's expressions may mean.
pub(super) struct Grouped<'g, 's> {
    pub targets: &'g [Target],
    /// The select list as it is written.
    pub written: &'g [&'g Ast],
    pub scope: &'g Scope<'s>,
}

fn too_many(what: &str, code: SqlState) -> Error {
    Error::new(code, what)
}

/// ROLLUP or CUBE as the parser reads it inside of GROUPING SETS.
fn nested(list: &[Ast]) -> Option<Ast> {
    let [Ast::Function(f)] = list else {
        return None;
    };
    let name = f.name.to_string().to_lowercase();
    let ast::FunctionArguments::List(l) = &f.args else {
        return None;
    };
    let one = |a: &ast::FunctionArg| match a {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(Ast::Tuple(items))) => {
            Some(items.clone())
        }
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => Some(vec![e.clone()]),
        _ => None,
    };
    let lists = l.args.iter().map(one).collect::<Option<_>>()?;
    match &*name {
        "rollup" => Some(Ast::Rollup(lists)),
        "cube" => Some(Ast::Cube(lists)),
        _ => None,
    }
}

/// The places of GROUPING's arguments among the keys. 42803 for one that is no key.
pub(super) fn grouping_of(
    keys: &[Expr],
    sets: Option<Vec<Vec<usize>>>,
    calls: Vec<(Slot, Vec<Expr>)>,
) -> Result<Option<GroupingSets>> {
    if sets.is_none() && calls.is_empty() {
        return Ok(None);
    }
    let place = |e: &Expr| {
        keys.iter().position(|k| k.same(e)).ok_or_else(|| {
            Error::new(
                SqlState::GROUPING_ERROR,
                "arguments to GROUPING must be grouping expressions of the associated query level",
            )
        })
    };
    let mut placed = vec![];
    for (slot, exprs) in calls {
        let places = exprs.iter().map(place).collect::<Result<_>>()?;
        placed.push((slot, places));
    }
    Ok(Some(GroupingSets {
        sets: sets.unwrap_or_else(|| vec![(0..keys.len()).collect()]),
        calls: placed,
    }))
}

/// Each of these with each of those.
fn product(a: &[Vec<usize>], b: &[Vec<usize>]) -> Result<Vec<Vec<usize>>> {
    if a.len().saturating_mul(b.len()) > MAX_SETS {
        let what = "too many grouping sets present (maximum 4096)";
        return Err(too_many(what, SqlState::STATEMENT_TOO_COMPLEX));
    }
    let mut all = Vec::with_capacity(a.len() * b.len());
    for x in a {
        for y in b {
            let mut one = x.clone();
            one.extend(y.iter().filter(|k| !x.contains(k)));
            all.push(one);
        }
    }
    Ok(all)
}

impl Binder<'_> {
    /// GROUP BY's expressions: input columns first, then output names and positions.
    pub(super) fn group_keys(
        &mut self,
        g: &GroupByExpr,
        by: &Grouped<'_, '_>,
        calls: &mut Option<Vec<SetCall>>,
    ) -> Result<Keys> {
        let GroupByExpr::Expressions(exprs, modifiers) = g else {
            return Err(Error::unsupported("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(Error::unsupported("this form of GROUP BY"));
        }
        let mut keys = Keys::default();
        let mut sets = vec![vec![]];
        let mut several = false;
        for e in exprs {
            several |= match e {
                Ast::GroupingSets(_) | Ast::Rollup(_) | Ast::Cube(_) => true,
                Ast::Tuple(items) => items.is_empty(),
                _ => false,
            };
            let one = self.grouping_element(e, by, calls, &mut keys.exprs)?;
            sets = product(&sets, &one)?;
        }
        keys.sets = several.then_some(sets);
        Ok(keys)
    }

    /// The sets of keys that one element of GROUP BY stands for.
    fn grouping_element(
        &mut self,
        e: &Ast,
        by: &Grouped<'_, '_>,
        calls: &mut Option<Vec<SetCall>>,
        keys: &mut Vec<Expr>,
    ) -> Result<Vec<Vec<usize>>> {
        self.enter()?;
        let sets = match e {
            Ast::Rollup(lists) => {
                let parts = self.key_lists(lists, by, calls, keys)?;
                (0..=parts.len())
                    .rev()
                    .map(|n| parts[..n].concat())
                    .collect()
            }
            Ast::Cube(lists) => {
                let parts = self.key_lists(lists, by, calls, keys)?;
                if parts.len() > MAX_CUBE {
                    let what = "CUBE is limited to 12 elements";
                    return Err(too_many(what, SqlState::TOO_MANY_COLUMNS));
                }
                let subset = |bits: usize| {
                    let taken = (0..parts.len()).filter(|k| bits >> (parts.len() - 1 - k) & 1 == 1);
                    taken.flat_map(|k| parts[k].clone()).collect()
                };
                (0..1usize << parts.len()).rev().map(subset).collect()
            }
            Ast::GroupingSets(lists) => {
                let mut all = vec![];
                for list in lists {
                    // The parser takes ROLLUP and CUBE inside of GROUPING SETS for functions.
                    match nested(list) {
                        Some(e) => all.extend(self.grouping_element(&e, by, calls, keys)?),
                        None => all.extend(self.key_lists(
                            std::slice::from_ref(list),
                            by,
                            calls,
                            keys,
                        )?),
                    }
                    if all.len() > MAX_SETS {
                        let what = "too many grouping sets present (maximum 4096)";
                        return Err(too_many(what, SqlState::STATEMENT_TOO_COMPLEX));
                    }
                }
                all
            }
            e => vec![self.grouping_key(e, by, calls, keys)?],
        };
        self.depth -= 1;
        Ok(sets)
    }

    fn key_lists(
        &mut self,
        lists: &[Vec<Ast>],
        by: &Grouped<'_, '_>,
        calls: &mut Option<Vec<SetCall>>,
        keys: &mut Vec<Expr>,
    ) -> Result<Vec<Vec<usize>>> {
        let mut all = Vec::with_capacity(lists.len());
        for list in lists {
            let mut set: Vec<usize> = vec![];
            for e in list {
                for k in self.grouping_key(e, by, calls, keys)? {
                    if !set.contains(&k) {
                        set.push(k);
                    }
                }
            }
            all.push(set);
        }
        Ok(all)
    }

    /// Adds the keys of one expression; their places.
    fn grouping_key(
        &mut self,
        e: &Ast,
        by: &Grouped<'_, '_>,
        calls: &mut Option<Vec<SetCall>>,
        keys: &mut Vec<Expr>,
    ) -> Result<Vec<usize>> {
        let mut put = |e: Expr| match keys.iter().position(|k| k.same(&e)) {
            Some(at) => at,
            None => {
                keys.push(e);
                keys.len() - 1
            }
        };
        let targets = by.targets;
        if let Some(i) = ordinal(e, targets.len(), "GROUP BY")? {
            return Ok(vec![put(targets[i].bound.expr.clone())]);
        }
        if let Ast::Identifier(i) = e {
            let name = fold(i);
            if !by.scope.star.iter().any(|c| c.name == name) {
                let mut hits = targets.iter().filter(|t| t.name == name);
                if let Some(t) = hits.next() {
                    if hits.any(|o| !o.bound.expr.same(&t.bound.expr)) {
                        return Err(Error::new(
                            SqlState::AMBIGUOUS_COLUMN,
                            format!("GROUP BY \"{name}\" is ambiguous"),
                        ));
                    }
                    return Ok(vec![put(t.bound.expr.clone())]);
                }
            }
        }
        // An entry that is written again is the entry, though each subquery has a plan of its own.
        if !matches!(e, Ast::Identifier(_) | Ast::Tuple(_))
            && let Some(at) = by.written.iter().position(|w| *w == e)
        {
            return Ok(vec![put(targets[at].bound.expr.clone())]);
        }
        let mut env = Env::plain(by.scope, "GROUP BY");
        env.sets = calls.take();
        let items = match e {
            Ast::Tuple(items) => items,
            e => std::slice::from_ref(e),
        };
        let mut places = vec![];
        for i in items {
            let b = self.expr(i, &mut env)?;
            places.push(put(self.settle(b)?.expr));
        }
        *calls = env.sets;
        Ok(places)
    }

    /// `GROUPING(a, b)`: which of these keys the group leaves out.
    pub(super) fn grouping_call(&mut self, args: &[&Ast], env: &mut Env<'_, '_>) -> Result<Bound> {
        let refuse = |what: String| Err(Error::new(SqlState::GROUPING_ERROR, what));
        if env.aggs.is_none() {
            let clause = env.clause;
            return refuse(format!("grouping operations are not allowed in {clause}"));
        }
        if args.len() > 31 {
            let what = "GROUPING must have fewer than 32 arguments";
            return Err(Error::new(SqlState::TOO_MANY_ARGUMENTS, what));
        }
        let mut exprs = Vec::with_capacity(args.len());
        let mut inner = Env::plain(env.scope, "GROUPING");
        for e in args {
            let b = self.expr(e, &mut inner)?;
            exprs.push(self.settle(b)?.expr);
        }
        let slot = self.slot("GROUPING(?)");
        self.used[slot as usize] = true;
        env.groupings.push((slot, exprs));
        Ok(Bound::new(Expr::Slot(slot), Type::Int4))
    }

    /// Rewrites expressions above a grouping to read the keys' slots. A column that is no key is 42803, unless the keys hold
    /// its table's primary key: then it becomes a key itself. Returns the keys with their slots.
    pub(super) fn group(
        &mut self,
        keys: &mut Vec<Expr>,
        sets: &mut Option<GroupingSets>,
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
            let in_all = |k: usize| {
                let mut all = sets.iter().flat_map(|s| &s.sets);
                all.all(|set| set.contains(&k))
            };
            let common = keyed.iter().enumerate().filter(|(k, _)| in_all(*k));
            let common: Vec<Slot> = common.map(|(_, (slot, _))| *slot).collect();
            if self.depends_on_keys(s, &common, scope) {
                let at = keyed.len();
                keyed.push((s, Expr::Slot(s)));
                let all = sets.iter_mut().flat_map(|s| &mut s.sets);
                all.for_each(|set| set.push(at));
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
    fn depends_on_keys(&self, s: Slot, keys: &[Slot], scope: &Scope<'_>) -> bool {
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
                        && matches!(k.expr, Expr::Slot(x) if keys.contains(&x))
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
