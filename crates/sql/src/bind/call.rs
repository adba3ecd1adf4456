//! Function calls: special forms, aggregates, set-returning functions, plain calls.

use super::blanks::{of_aggregate, sees_blanks};
use super::expr::Env;
use super::{Binder, Bound};
use crate::catalog::split_name;
use crate::expr::Expr;
use crate::functions::signature::{Entry, Sig};
use crate::functions::{
    Kind, NEXT_IDENTITY, Resolved, SET_ELEMENT, SET_MEMBER, lookup_function, lookup_operator,
};
use crate::logical::{Agg, SortKey};
use crate::types::typename::format_type;
use base::{Error, Result, SqlState, Type};
use sqlparser::ast::{
    self, DuplicateTreatment, Expr as Ast, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments,
};

/// Aggregates whose result depends on the order of their input.
const KEEPS_ORDER: [&str; 6] = [
    "array_agg",
    "string_agg",
    "json_agg",
    "jsonb_agg",
    "json_object_agg",
    "jsonb_object_agg",
];

/// Names that are functions without parentheses in SQL.
pub(super) fn sql_value_function(name: &str) -> Option<&'static str> {
    Some(match name {
        "current_date" => "current_date",
        "current_time" => "current_time",
        "current_timestamp" => "current_timestamp",
        "localtime" => "localtime",
        "localtimestamp" => "localtimestamp",
        "current_user" | "user" | "current_role" => "current_user",
        "session_user" => "session_user",
        "current_catalog" => "current_database",
        "current_schema" => "current_schema",
        _ => return None,
    })
}

/// A parameter of type `void` is left out of a call, as in PostgreSQL: drivers put the call's result among its parameters so.
pub(super) fn is_no_argument(b: &Bound) -> bool {
    b.ty.ty == Type::Void && matches!(b.expr, Expr::Param(_))
}

/// `count(t.*)` is `count(t)`, but a row that an outer join left empty does not count.
fn of_whole_row(f: &ast::Function, args: &[FunctionArg]) -> Option<ast::Function> {
    let [FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(rel))] = args else {
        return None;
    };
    let last = rel.0.last().and_then(|p| p.as_ident())?;
    let row = Ast::Identifier(last.clone());
    let mut one = f.clone();
    if let FunctionArguments::List(l) = &mut one.args {
        l.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(row))];
    }
    Some(one)
}

impl Binder<'_> {
    /// A plain function by name.
    pub fn call(&mut self, name: &str, args: Vec<Bound>) -> Result<Bound> {
        let types: Vec<Type> = args.iter().map(|b| b.ty.ty).collect();
        let f = lookup_function(name, &types)?;
        self.apply(f, args)
    }

    /// A plain function by name, over these expressions.
    pub(super) fn call_on(
        &mut self,
        name: &str,
        args: &[&Ast],
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let args = args
            .iter()
            .map(|e| self.expr(e, env))
            .collect::<Result<_>>()?;
        self.call(name, args)
    }

    /// A resolved scalar function on bound arguments.
    fn apply(&mut self, f: Resolved, args: Vec<Bound>) -> Result<Bound> {
        let draws = f.name == "nextval" && args.iter().all(|a| matches!(a.expr, Expr::Const(_)));
        let before = self.looks_up;
        let exprs = self.arguments(&f, args)?;
        if draws {
            // Its sequence is known now; which one it is a definition says.
            (self.looks_up, self.by_definitions) = (before, true);
        }
        if let Kind::Cast = f.kind {
            let from = Bound {
                expr: exprs.into_iter().next().expect("one argument"),
                ty: f.args[0].into(),
            };
            return self.explicit_cast(from, f.ret.into());
        }
        let ret = f.ret;
        Ok(Bound::new(self.make_call(f, exprs, None), ret))
    }

    /// Arguments converted to the function's types.
    pub(super) fn arguments(&mut self, f: &Resolved, args: Vec<Bound>) -> Result<Vec<Expr>> {
        if let Kind::Cast = f.kind {
            return Ok(args.into_iter().map(|b| b.expr).collect());
        }
        args.into_iter()
            .zip(&f.args)
            .map(|(b, &t)| self.coerce(b, t))
            .collect()
    }

    pub(super) fn function(&mut self, f: &ast::Function, env: &mut Env<'_, '_>) -> Result<Bound> {
        let (schema, name) = split_name(&f.name)?;
        if [NEXT_IDENTITY, SET_ELEMENT, SET_MEMBER].contains(&&*name) {
            // Only rows of the column's table draw from it so.
            let what = format!("function \"{name}\" does not exist");
            return Err(Error::new(SqlState::UNDEFINED_FUNCTION, what));
        }
        let at = match f.name.0.first() {
            Some(ast::ObjectNamePart::Identifier(i)) => self.position(i.span.start),
            _ => 0,
        };
        self.function_call(f, schema.as_deref(), &name, env)
            .map_err(|e| {
                if e.fields().position == 0 && e.code() == SqlState::UNDEFINED_FUNCTION {
                    e.at(at)
                } else {
                    e
                }
            })
    }

    fn function_call(
        &mut self,
        f: &ast::Function,
        schema: Option<&str>,
        name: &str,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        if f.null_treatment.is_some() || !matches!(f.parameters, FunctionArguments::None) {
            return Err(Error::unsupported(format!("this form of the call {name}")));
        }
        self.may_be_in(name, schema)?;
        let list = match &f.args {
            FunctionArguments::None => {
                let name = sql_value_function(name).unwrap_or(name);
                return self.call(name, vec![]);
            }
            FunctionArguments::Subquery(q) => {
                if name == "array" {
                    return self.array_subquery(q, env);
                }
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    format!("a subquery as the argument of {name} needs its own parentheses"),
                ));
            }
            FunctionArguments::List(l) => l,
        };
        let mut args: Vec<&Ast> = Vec::with_capacity(list.args.len());
        let mut star = false;
        if name == "row"
            && schema.is_none()
            && let Some(row) = self.row_with_stars(&list.args, env)?
        {
            return Ok(row);
        }
        if let Some(one) = of_whole_row(f, &list.args) {
            return self.function_call(&one, schema, name, env);
        }
        if name == "make_interval"
            && list
                .args
                .iter()
                .any(|a| !matches!(a, FunctionArg::Unnamed(_)))
        {
            return self.named_interval(&list.args, env);
        }
        for a in &list.args {
            match a {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => args.push(e),
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => star = true,
                _ => return Err(Error::unsupported("an argument by name")),
            }
        }
        if let Some((last, first)) = args.split_last()
            && let Some(array) = super::spelling::spread(last)
        {
            return self.spread_call(name, first, array, env);
        }
        if !f.within_group.is_empty() || super::ordered_set::is_ordered_set(name) {
            return self.ordered_set(name, f, &args, env);
        }
        if let Some(over) = &f.over {
            return self.windowed(name, f, over, (&args, star), env);
        }
        if schema.is_none()
            && let Some(b) = self.special_form(name, &args, env)?
        {
            return Ok(b);
        }
        if name == "grouping" && schema.is_none() {
            return self.grouping_call(&args, env);
        }
        let aggregate = crate::functions::registry::functions(name)
            .iter()
            .any(|e| matches!(e.kind, Kind::Aggregate(_)));
        if aggregate {
            return self.aggregate(name, f, list, &args, star, env);
        }
        let bound = self.call_arguments(name, &args, env)?;
        if name == "row_to_json" {
            return super::json_rows::row_to_json(bound);
        }
        let types: Vec<Type> = bound.iter().map(|b| b.ty.ty).collect();
        if name == "pg_typeof" && types == [Type::Unknown] {
            // The literal's own type, before anything makes it text.
            let oid = Expr::Const(base::Value::Oid(Type::Unknown.oid()));
            return Ok(Bound::new(oid, Type::RegType));
        }
        let found = self.function_named(name, &types)?;
        if f.filter.is_some() || list.duplicate_treatment.is_some() || star {
            return Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("{name} is not an aggregate function"),
            ));
        }
        self.call_of(found, bound, env)
    }

    /// The arguments of a plain call.
    fn call_arguments(
        &mut self,
        name: &str,
        args: &[&Ast],
        env: &mut Env<'_, '_>,
    ) -> Result<Vec<Bound>> {
        let mut bound = Vec::with_capacity(args.len());
        for e in args {
            let b = self.expr(e, env)?;
            if is_no_argument(&b) {
                continue;
            }
            let b = self.json_argument(name, e, b, env.scope)?;
            bound.push(match sees_blanks(name) {
                true => self.with_blanks(b)?,
                false => b,
            });
        }
        Ok(bound)
    }

    /// `f(a, VARIADIC array)`.
    fn spread_call(
        &mut self,
        name: &str,
        first: &[&Ast],
        array: &Ast,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let mut bound = Vec::with_capacity(first.len() + 1);
        for e in first {
            bound.push(self.expr(e, env)?);
        }
        bound.push(self.expr(array, env)?);
        let given: Vec<Type> = bound.iter().map(|b| b.ty.ty).collect();
        let last = given[first.len()];
        let spreads = |e: &&Entry| e.variadic && e.args.len() == given.len();
        let found = crate::functions::registry::functions(name)
            .iter()
            .find(spreads);
        let no_function = || crate::functions::no_function(name, &given);
        let e = found.ok_or_else(no_function)?;
        // A literal is one of the array that the function names, if it names one.
        let named = e.args.last() != Some(&Sig::Any) && last == Type::Unknown;
        if last.element().is_none() && !named {
            let what = "VARIADIC argument must be an array";
            return Err(Error::new(SqlState::DATATYPE_MISMATCH, what));
        }
        let (Kind::Typed(f), Sig::Is(ret)) = (e.kind, e.ret) else {
            return Err(no_function());
        };
        let own = |(i, sig): (usize, &Sig)| match *sig {
            Sig::Is(t) if i == first.len() => t.array_of().unwrap_or(last),
            Sig::Is(t) => t,
            _ if given[i] != Type::Unknown => given[i],
            _ => Type::Text,
        };
        let resolved = Resolved {
            name: e.name,
            args: e.args.iter().enumerate().map(own).collect(),
            ret,
            strict: e.strict,
            volatility: e.volatility,
            kind: Kind::Spread(f),
            columns: &[],
        };
        self.apply(resolved, bound)
    }

    /// Built-in functions are said to be in `pg_catalog` or `public`, those of an extension in its schema, too. 3F000, 42883.
    fn may_be_in(&self, name: &str, schema: Option<&str>) -> Result<()> {
        let all = &self.cx.catalog.schema;
        let built_in = ["pg_catalog", "public", "information_schema"];
        let Some(s) = schema.filter(|s| !built_in.contains(s)) else {
            return Ok(());
        };
        let Some(n) = all.namespace_named(s) else {
            return Err(crate::types::text::no_schema(s));
        };
        let of = crate::functions::registry::extension_of(name);
        match of.and_then(|e| all.extension(e)) {
            Some(e) if e.namespace == n.id => Ok(()),
            _ => Err(Error::new(
                SqlState::UNDEFINED_FUNCTION,
                format!("function {s}.{name} does not exist"),
            )),
        }
    }

    /// The function that a user's text means: one of an extension only where the extension is there.
    pub(super) fn function_named(&self, name: &str, types: &[Type]) -> Result<Resolved> {
        let of = crate::functions::registry::extension_of(name);
        if of.is_some_and(|e| self.cx.catalog.schema.extension(e).is_none()) {
            return Err(crate::functions::no_function(name, types));
        }
        lookup_function(name, types)
    }

    fn call_of(&mut self, f: Resolved, args: Vec<Bound>, env: &mut Env<'_, '_>) -> Result<Bound> {
        match f.kind {
            Kind::Window(_) => Err(super::window::needs_over(f.name)),
            Kind::SetReturning(_) => self.set_in_list(f, args, env),
            _ => self.apply(f, args),
        }
    }

    /// `make_interval(days => 10)`: the one function whose arguments are given by name in practice.
    fn named_interval(&mut self, args: &[FunctionArg], env: &mut Env<'_, '_>) -> Result<Bound> {
        const NAMES: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
        let mut out: Vec<Bound> = (0..6)
            .map(|_| Bound::new(Expr::Const(base::Value::Int4(0)), Type::Int4))
            .collect();
        out.push(Bound::new(
            Expr::Const(base::Value::Float8(0.0)),
            Type::Float8,
        ));
        for (i, a) in args.iter().enumerate() {
            let (at, e) = match a {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => (Some(i), e),
                FunctionArg::Named {
                    name,
                    arg: FunctionArgExpr::Expr(e),
                    ..
                } => {
                    let name = crate::catalog::fold(name);
                    (NAMES.iter().position(|n| **n == name), e)
                }
                FunctionArg::ExprNamed {
                    name: Ast::Identifier(name),
                    arg: FunctionArgExpr::Expr(e),
                    ..
                } => {
                    let name = crate::catalog::fold(name);
                    (NAMES.iter().position(|n| **n == name), e)
                }
                _ => (None, &Ast::Value(ast::Value::Null.with_empty_span())),
            };
            let at = at.filter(|&at| at < out.len()).ok_or_else(|| {
                Error::new(
                    SqlState::UNDEFINED_FUNCTION,
                    "function make_interval has no argument of this name",
                )
            })?;
            out[at] = self.expr(e, env)?;
        }
        self.call("make_interval", out)
    }

    /// COALESCE and its kin, which are syntax in PostgreSQL.
    fn special_form(
        &mut self,
        name: &str,
        args: &[&Ast],
        env: &mut Env<'_, '_>,
    ) -> Result<Option<Bound>> {
        let what = match name {
            "coalesce" | "greatest" | "least" | "nullif" => name.to_uppercase(),
            "row" => {
                let items: Vec<Ast> = args.iter().map(|e| (*e).clone()).collect();
                return self.row(&items, env).map(Some);
            }
            _ => return Ok(None),
        };
        let mut bound = Vec::with_capacity(args.len());
        let around = env.in_branch;
        if name == "coalesce" {
            env.in_branch = Some("COALESCE");
        }
        for e in args {
            bound.push(self.expr(e, env)?);
        }
        env.in_branch = around;
        if name == "nullif" {
            let [a, b] = <[Bound; 2]>::try_from(bound)
                .map_err(|_| Error::new(SqlState::SYNTAX_ERROR, "NULLIF takes two arguments"))?;
            let f = lookup_operator("=", Some(a.ty.ty), b.ty.ty)?;
            let ty = match a.ty.ty == f.args[0] {
                true => a.ty,
                false => f.args[0].into(),
            };
            let kept = self.coerce(a.clone(), f.args[0])?;
            let same = self.operator("=", a, b)?.expr;
            let e = Expr::NullIf(Box::new((kept, same)));
            return Ok(Some(Bound { expr: e, ty }));
        }
        if bound.is_empty() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("{what} needs arguments"),
            ));
        }
        let (items, ty) = self.unify(bound, &what)?;
        let expr = if name == "coalesce" {
            Expr::Coalesce(items)
        } else {
            let f = lookup_operator("<", Some(ty.ty), ty.ty)?;
            if !super::expr::comparable(f.args[0], f.args[1]) {
                return Err(Error::unsupported(format!(
                    "{what} of type {}",
                    format_type(ty.ty, -1)
                )));
            }
            Expr::Extreme {
                least: name == "least",
                items,
            }
        };
        Ok(Some(Bound { expr, ty }))
    }

    fn aggregate(
        &mut self,
        name: &str,
        f: &ast::Function,
        list: &ast::FunctionArgumentList,
        args: &[&Ast],
        star: bool,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        self.may_aggregate(env)?;
        let mut inner = env.argument();
        let mut bound = Vec::with_capacity(args.len());
        for e in args {
            let b = self.expr(e, &mut inner)?;
            let b = self.json_argument(name, e, b, inner.scope)?;
            bound.push(match sees_blanks(name) {
                true => self.with_blanks(b)?,
                false => b,
            });
        }
        if star && name != "count" || !star && args.is_empty() && name == "count" {
            return Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("{name}(*) must be used to call a parameterless aggregate function"),
            ));
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
        let Kind::Aggregate(id) = found.kind else {
            return Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("{name} is not an aggregate function"),
            ));
        };
        let mut order = Vec::new();
        for c in &list.clauses {
            match c {
                FunctionArgumentClause::OrderBy(items) => {
                    for i in items {
                        // An argument that is written again is the argument, though each subquery has a plan of its own.
                        let b = match args.iter().position(|a| **a == i.expr) {
                            Some(at) => bound[at].clone(),
                            None => self.expr(&i.expr, &mut inner)?,
                        };
                        let b = self.settle(b)?;
                        order.push(sort_key(b.expr, &i.options)?);
                    }
                }
                other => {
                    return Err(Error::unsupported(format!("{other} in a call of {name}")));
                }
            }
        }
        let ty = of_aggregate(name, found.ret, bound.first().map(|b| b.ty));
        let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        let exprs = self.arguments(&found, bound)?;
        if distinct && !order.iter().all(|k| exprs.iter().any(|e| e.same(&k.expr))) {
            return Err(Error::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            ));
        }
        self.must_read_here(name, &exprs, filter.as_ref(), env.scope)?;
        if distinct && KEEPS_ORDER.contains(&name) {
            // Equal rows are found by sorting in PostgreSQL, and come in that order.
            let rest = exprs.iter().filter(|e| !matches!(e, Expr::Const(_)));
            for e in rest {
                if !order.iter().any(|k: &SortKey| k.expr.same(e)) {
                    order.push(SortKey {
                        expr: e.clone(),
                        desc: false,
                        nulls_first: false,
                    });
                }
            }
        }
        let shown = if star {
            "*".to_owned()
        } else {
            let all: Vec<String> = exprs
                .iter()
                .map(|e| crate::expr::show::show(e, &self.names))
                .collect();
            all.join(", ")
        };
        let slot = self.slot(format!("{name}({shown})"));
        self.used[slot as usize] = true;
        let agg = Agg {
            slot,
            id,
            args: exprs,
            types: found.args.clone(),
            distinct,
            filter,
            order,
        };
        let aggs = env.aggs.as_mut().expect("checked");
        // The same call twice is computed once.
        let known = aggs.iter().find(|a| {
            a.id.name == agg.id.name
                && a.types == agg.types
                && a.distinct == agg.distinct
                && a.args.len() == agg.args.len()
                && a.args.iter().zip(&agg.args).all(|(x, y)| x.same(y))
                && a.order.is_empty()
                && agg.order.is_empty()
                && match (&a.filter, &agg.filter) {
                    (None, None) => true,
                    (Some(x), Some(y)) => x.same(y),
                    _ => false,
                }
        });
        let slot = match known {
            Some(k) => k.slot,
            None => {
                aggs.push(agg);
                slot
            }
        };
        Ok(Bound {
            expr: Expr::Slot(slot),
            ty,
        })
    }

    /// Refuses an aggregate where none may stand.
    pub(super) fn may_aggregate(&self, env: &Env<'_, '_>) -> Result<()> {
        let misplaced = |m: String| Err(Error::new(SqlState::GROUPING_ERROR, m));
        if env.in_aggregate {
            return misplaced("aggregate function calls cannot be nested".into());
        }
        match env.aggs {
            Some(_) => Ok(()),
            None => misplaced(format!(
                "aggregate functions are not allowed in {}",
                env.clause
            )),
        }
    }

    /// An aggregate over columns of an outer query alone is that query's in SQL; here it has no such place.
    fn must_read_here(
        &self,
        name: &str,
        args: &[Expr],
        filter: Option<&Expr>,
        scope: &super::Scope<'_>,
    ) -> Result<()> {
        let own = scope.own_slots();
        let (mut any, mut here) = (false, false);
        for e in args.iter().chain(filter) {
            e.slots(&mut |s| {
                any = true;
                here |= own.binary_search(&s).is_ok();
            });
        }
        if any && !here {
            return Err(Error::unsupported(format!(
                "{name} in a subquery over columns of the outer query alone"
            )));
        }
        Ok(())
    }

    /// A set-returning function in a select list.
    fn set_in_list(
        &mut self,
        f: Resolved,
        args: Vec<Bound>,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let refuse = |what: String| Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what));
        let hint = "You might be able to move the set-returning function into a LATERAL FROM item.";
        if env.in_window {
            let what = "window function calls cannot contain set-returning function calls";
            return refuse(what.into()).map_err(|e: Error| e.hint(hint));
        }
        if env.in_aggregate {
            let what = "aggregate function calls cannot contain set-returning function calls";
            return refuse(what.into()).map_err(|e: Error| e.hint(hint));
        }
        let place = env.in_branch.unwrap_or(env.clause);
        let shown = format!("set-returning functions are not allowed in {place}");
        if env.sets.is_some() && env.in_branch.is_some() {
            return refuse(shown).map_err(|e: Error| e.hint(hint));
        }
        let exprs = self.arguments(&f, args)?;
        let ret = f.ret;
        let Some(sets) = &mut env.sets else {
            return refuse(format!(
                "set-returning functions are not allowed in {}",
                env.clause
            ));
        };
        // The same call in GROUP BY or ORDER BY is the one in the list.
        let same = |(_, g, args): &&(crate::expr::Slot, Resolved, Vec<Expr>)| {
            g.name == f.name
                && g.args == f.args
                && args.len() == exprs.len()
                && args.iter().zip(&exprs).all(|(a, b)| {
                    a.same(b) && a.volatility() < crate::functions::Volatility::Volatile
                })
        };
        let slot = match sets.iter().find(same) {
            Some((slot, ..)) => *slot,
            None => {
                let slot = self.slot(f.name);
                self.used[slot as usize] = true;
                if !f.columns.is_empty() {
                    let columns = f.columns.iter().map(|(n, t)| ((*n).to_owned(), *t));
                    self.shapes.push((slot, columns.collect()));
                }
                sets.push((slot, f, exprs));
                slot
            }
        };
        Ok(Bound::new(Expr::Slot(slot), ret))
    }
}

/// A sort key with PostgreSQL's place for NULLs: last ascending, first descending.
pub(crate) fn sort_key(expr: Expr, o: &ast::OrderByOptions) -> Result<SortKey> {
    let desc = match &o.sort {
        None | Some(ast::OrderBySort::Asc) => false,
        Some(ast::OrderBySort::Desc) => true,
        Some(ast::OrderBySort::Using(op)) => match op.to_string().as_str() {
            "<" => false,
            ">" => true,
            _ => return Err(Error::unsupported(format!("ORDER BY USING {op}"))),
        },
    };
    Ok(SortKey {
        expr,
        desc,
        nulls_first: o.nulls_first.unwrap_or(desc),
    })
}
