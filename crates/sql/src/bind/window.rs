//! Calls with OVER: windows, by name or written out, frames, and the calls' arguments.
//!
//! A window that is named in the WINDOW clause is bound anew where it is named. The clause itself is checked when the select list is bound,
//! so that a window that no call names is refused all the same if it is wrong.
//!
//! Left out on purpose: IGNORE NULLS, which PostgreSQL 15 has neither.

use super::expr::Env;
use super::syntax::exclusion;
use super::{Binder, Bound, Scope};
use crate::catalog::fold;
use crate::expr::Expr;
use crate::functions::{Kind, lookup_function};
use crate::logical::SortKey;
use crate::logical::window::{self, Exclude, Frame, Over, Ranged, Unit, Window, WindowCall};
use crate::types::cast::CastKind;
use crate::types::typename::format_type;
use base::{Error, Result, SqlState, Type};
use sqlparser::ast::{
    self, Expr as Ast, NamedWindowDefinition, NamedWindowExpr, WindowFrameBound, WindowFrameUnits,
    WindowSpec, WindowType,
};

/// Windows that calls may name, and the calls that were met.
pub(crate) struct Windows<'s> {
    pub named: &'s [NamedWindowDefinition],
    pub calls: Vec<(Window, WindowCall)>,
}

/// A window as it is bound: its frame, where one is written.
struct Defined {
    window: Window,
    frame: Option<Frame>,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(SqlState::WINDOWING_ERROR, what)
}

/// A window function without OVER.
pub(super) fn needs_over(name: &str) -> Error {
    Error::new(
        SqlState::WRONG_OBJECT_TYPE,
        format!("window function {name} requires an OVER clause"),
    )
}

impl Binder<'_> {
    /// `name(args) OVER …`.
    pub(super) fn windowed(
        &mut self,
        name: &str,
        f: &ast::Function,
        over: &WindowType,
        (args, star): (&[&Ast], bool),
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        if env.in_aggregate {
            let what = "aggregate function calls cannot contain window function calls";
            return Err(Error::new(SqlState::GROUPING_ERROR, what));
        }
        if env.in_window {
            return Err(wrong("window function calls cannot be nested"));
        }
        let Some(mut windows) = env.windows.take() else {
            let clause = env.clause;
            return Err(wrong(format!(
                "window functions are not allowed in {clause}"
            )));
        };
        // Sets have no place below a window; aggregates do.
        let sets = env.sets.take();
        env.in_window = true;
        let call = self.window_call(name, f, over, (args, star), windows.named, env);
        env.in_window = false;
        env.sets = sets;
        let (window, call, ty) = call?;
        let known = windows
            .calls
            .iter()
            .find(|(w, c)| w.same(&window) && c.same(&call));
        let slot = match known {
            Some((_, c)) => c.slot,
            None => {
                let slot = call.slot;
                windows.calls.push((window, call));
                slot
            }
        };
        env.windows = Some(windows);
        Ok(Bound::new(Expr::Slot(slot), ty))
    }

    fn window_call(
        &mut self,
        name: &str,
        f: &ast::Function,
        over: &WindowType,
        (args, star): (&[&Ast], bool),
        named: &[NamedWindowDefinition],
        env: &mut Env<'_, '_>,
    ) -> Result<(Window, WindowCall, Type)> {
        let mut bound = Vec::with_capacity(args.len());
        for e in args {
            bound.push(self.expr(e, env)?);
        }
        if matches!(name, "coalesce" | "greatest" | "least" | "nullif") {
            let what = "syntax error at or near \"OVER\"";
            return Err(Error::new(SqlState::SYNTAX_ERROR, what));
        }
        if !star && args.is_empty() && name == "count" {
            return Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("{name}(*) must be used to call a parameterless aggregate function"),
            ));
        }
        let types: Vec<Type> = bound.iter().map(|b| b.ty.ty).collect();
        let found = lookup_function(name, &types)?;
        let over_what = match found.kind {
            Kind::Window(w) => Over::Function(w),
            Kind::Aggregate(id) => Over::Aggregate(id),
            _ => {
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!(
                        "OVER specified, but {name} is not a window function nor an aggregate function"
                    ),
                ));
            }
        };
        refuse_forms(f, matches!(over_what, Over::Function(_)))?;
        let filter = match &f.filter {
            Some(e) => {
                let b = self.expr(e, env)?;
                Some(self.condition(b, "FILTER")?)
            }
            None => None,
        };
        let args = self.arguments(&found, bound)?;
        let defined = match over {
            WindowType::NamedWindow(i) => self.window_named(&fold(i), named, env)?,
            WindowType::WindowSpec(s) => self.window(s, named, env)?,
        };
        let slot = self.slot(format!("{name}() OVER (?)"));
        self.used[slot as usize] = true;
        let call = WindowCall {
            slot,
            name: found.name,
            over: over_what,
            args,
            types: found.args.clone(),
            filter,
            frame: defined.frame.unwrap_or_else(Frame::running),
        };
        Ok((defined.window, call, found.ret))
    }

    /// Checks the windows of a WINDOW clause: each has its own name, and names only those before it.
    pub(super) fn check_windows(&mut self, env: &mut Env<'_, '_>) -> Result<()> {
        let named = env.windows.as_ref().map_or(&[][..], |w| w.named);
        for (i, d) in named.iter().enumerate() {
            let name = fold(&d.0);
            if named[..i].iter().any(|o| fold(&o.0) == name) {
                return Err(wrong(format!("window \"{name}\" is already defined")));
            }
            let windows = env.windows.take();
            env.in_window = true;
            let one = self.window_named(&name, &named[..=i], env);
            env.in_window = false;
            env.windows = windows;
            one?;
        }
        Ok(())
    }

    fn window_named(
        &mut self,
        name: &str,
        named: &[NamedWindowDefinition],
        env: &mut Env<'_, '_>,
    ) -> Result<Defined> {
        let at = named.iter().position(|d| fold(&d.0) == name);
        let Some(at) = at else {
            return Err(Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!("window \"{name}\" does not exist"),
            ));
        };
        match &named[at].1 {
            NamedWindowExpr::WindowSpec(s) => self.window(s, &named[..at], env),
            NamedWindowExpr::NamedWindow(_) => {
                Err(Error::unsupported("a window without parentheses"))
            }
        }
    }

    fn window(
        &mut self,
        s: &WindowSpec,
        named: &[NamedWindowDefinition],
        env: &mut Env<'_, '_>,
    ) -> Result<Defined> {
        self.enter()?;
        let (base, exclude) = exclusion(s.window_name.as_ref());
        let mut window = Window {
            partition: vec![],
            order: vec![],
        };
        if let Some(base) = &base {
            let d = self.window_named(base, named, env)?;
            let refuse = |what: String| Err(wrong(what));
            if !s.partition_by.is_empty() {
                return refuse(format!(
                    "cannot override PARTITION BY clause of window \"{base}\""
                ));
            }
            if !s.order_by.is_empty() && !d.window.order.is_empty() {
                return refuse(format!(
                    "cannot override ORDER BY clause of window \"{base}\""
                ));
            }
            if d.frame.is_some() {
                return refuse(format!(
                    "cannot copy window \"{base}\" because it has a frame clause"
                ));
            }
            window = d.window;
        }
        let clause = env.clause;
        for e in &s.partition_by {
            env.clause = "window PARTITION BY";
            let b = self.expr(e, env)?;
            window.partition.push(self.settle(b)?.expr);
        }
        let mut types = vec![];
        for o in &s.order_by {
            env.clause = "window ORDER BY";
            let b = self.expr(&o.expr, env)?;
            let b = self.settle(b)?;
            types.push(b.ty.ty);
            window
                .order
                .push(super::call::sort_key(b.expr, &o.options)?);
        }
        env.clause = clause;
        let frame = match &s.window_frame {
            None if exclude.is_some() => {
                let what = "syntax error at or near \"EXCLUDE\"";
                return Err(Error::new(SqlState::SYNTAX_ERROR, what));
            }
            None => None,
            Some(f) => {
                let exclude = exclude.unwrap_or_default();
                let ty = match (&types[..], &base) {
                    ([ty], _) => Some(*ty),
                    ([], Some(b)) if window.order.len() == 1 => self.order_type(b, named, env)?,
                    _ => None,
                };
                Some(self.frame(f, exclude, &window.order, ty, env.scope)?)
            }
        };
        self.depth -= 1;
        Ok(Defined { window, frame })
    }

    /// The type of the one sort key of a named window.
    fn order_type(
        &mut self,
        name: &str,
        named: &[NamedWindowDefinition],
        env: &mut Env<'_, '_>,
    ) -> Result<Option<Type>> {
        let at = named.iter().position(|d| fold(&d.0) == name);
        let Some((at, NamedWindowExpr::WindowSpec(s))) = at.map(|at| (at, &named[at].1)) else {
            return Ok(None);
        };
        match (&s.order_by[..], exclusion(s.window_name.as_ref()).0) {
            ([o], _) => {
                let b = self.expr(&o.expr, env)?;
                Ok(Some(self.settle(b)?.ty.ty))
            }
            (_, Some(base)) => self.order_type(&base, &named[..at], env),
            _ => Ok(None),
        }
    }

    fn frame(
        &mut self,
        f: &ast::WindowFrame,
        exclude: Exclude,
        order: &[SortKey],
        ty: Option<Type>,
        scope: &Scope<'_>,
    ) -> Result<Frame> {
        let unit = match f.units {
            WindowFrameUnits::Rows => Unit::Rows,
            WindowFrameUnits::Range => Unit::Range,
            WindowFrameUnits::Groups => Unit::Groups,
        };
        let end = f
            .end_bound
            .as_ref()
            .unwrap_or(&WindowFrameBound::CurrentRow);
        ends_in_order(&f.start_bound, end)?;
        if unit == Unit::Groups && order.is_empty() {
            return Err(wrong("GROUPS mode requires an ORDER BY clause"));
        }
        let offsets = matches!(
            &f.start_bound,
            WindowFrameBound::Preceding(Some(_)) | WindowFrameBound::Following(Some(_))
        ) || matches!(
            end,
            WindowFrameBound::Preceding(Some(_)) | WindowFrameBound::Following(Some(_))
        );
        let mut ranged = None;
        let mut to = Type::Int8;
        if unit == Unit::Range && offsets {
            let ([key], Some(ty)) = (order, ty) else {
                return Err(wrong(
                    "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
                ));
            };
            let (value, offset) = compared_as(ty)?;
            to = offset;
            let b = self.explicit_cast(Bound::new(key.expr.clone(), ty), value.into())?;
            let mut slot = || {
                let s = self.slot(String::new());
                self.used[s as usize] = true;
                s
            };
            let (current, offset) = (slot(), slot());
            let r = Ranged {
                value: b.expr,
                current,
                offset,
                start: None,
                end: None,
            };
            ranged = Some((r, value, key.desc, ty));
        }
        let mut one = |b: &WindowFrameBound, at_end: bool| -> Result<window::Bound> {
            let (e, before) = match b {
                WindowFrameBound::CurrentRow => return Ok(window::Bound::Current),
                WindowFrameBound::Preceding(None) | WindowFrameBound::Following(None) => {
                    return Ok(window::Bound::Unbounded);
                }
                WindowFrameBound::Preceding(Some(e)) => (e, true),
                WindowFrameBound::Following(Some(e)) => (e, false),
            };
            let shown = ["ROWS", "RANGE", "GROUPS"][unit as usize];
            let e = self.offset(e, shown, to, ranged.as_ref().map(|r| r.3), scope)?;
            if let Some((r, value, desc, _)) = &mut ranged {
                let op = if before != *desc { "-" } else { "+" };
                let left = Bound::new(Expr::Slot(r.current), *value);
                let right = Bound::new(Expr::Slot(r.offset), to);
                let limit = self.operator(op, left, right)?.expr;
                *(if at_end { &mut r.end } else { &mut r.start }) = Some(limit);
            }
            Ok(match before {
                true => window::Bound::Preceding(e),
                false => window::Bound::Following(e),
            })
        };
        let (start, end) = (one(&f.start_bound, false)?, one(end, true)?);
        Ok(Frame {
            unit,
            start,
            end,
            exclude,
            range: ranged.map(|(r, ..)| r),
        })
    }

    /// An offset of a frame, as this type. `column`: the type of the sort key of a RANGE.
    fn offset(
        &mut self,
        e: &Ast,
        shown: &str,
        to: Type,
        column: Option<Type>,
        scope: &Scope<'_>,
    ) -> Result<Expr> {
        // The parser takes a bare string for an interval.
        let literal = match e {
            Ast::Interval(i) if i.leading_field.is_none() && to != Type::Interval => &*i.value,
            e => e,
        };
        let mut env = Env::plain(scope, "window frame clauses");
        env.clause = match shown {
            "ROWS" => "window ROWS",
            "RANGE" => "window RANGE",
            _ => "window GROUPS",
        };
        let b = self.expr(literal, &mut env)?;
        let mut reads = false;
        let own = scope.own_slots();
        b.expr
            .slots(&mut |s| reads |= own.binary_search(&s).is_ok());
        if reads {
            return Err(Error::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!("argument of {shown} must not contain variables"),
            ));
        }
        let from = b.ty.ty;
        let kind = match column {
            Some(_) => CastKind::Implicit,
            None => CastKind::Assignment,
        };
        if let Some(e) = self.try_coerce(b, to.into(), kind)? {
            return Ok(e);
        }
        let name = |t| format_type(t, -1);
        Err(match column {
            Some(c) => Error::unsupported(format!(
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {} and offset type {}",
                name(c),
                name(from)
            )),
            None => Error::new(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "argument of {shown} must be type bigint, not type {}",
                    name(from)
                ),
            ),
        })
    }
}

/// The type in which the ends of a RANGE over this type are compared, and that of its offsets.
fn compared_as(ty: Type) -> Result<(Type, Type)> {
    Ok(match ty {
        // Wider than the key, so that no end is out of range.
        Type::Int2 | Type::Int4 | Type::Int8 => (Type::Numeric, Type::Int8),
        Type::Numeric => (Type::Numeric, Type::Numeric),
        Type::Float4 | Type::Float8 => (Type::Float8, Type::Float8),
        Type::Date | Type::Timestamp => (Type::Timestamp, Type::Interval),
        Type::TimestampTz => (Type::TimestampTz, Type::Interval),
        // Times of a day do not wrap here.
        Type::Time | Type::Interval => (Type::Interval, Type::Interval),
        _ => {
            return Err(Error::unsupported(format!(
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {}",
                format_type(ty, -1)
            )));
        }
    })
}

/// Refuses frames whose end lies before their start by their form alone.
fn ends_in_order(start: &WindowFrameBound, end: &WindowFrameBound) -> Result<()> {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    Err(wrong(match (start, end) {
        (Following(None), _) => "frame start cannot be UNBOUNDED FOLLOWING",
        (_, Preceding(None)) => "frame end cannot be UNBOUNDED PRECEDING",
        (CurrentRow, Preceding(_)) => "frame starting from current row cannot have preceding rows",
        (Following(_), Preceding(_)) => {
            "frame starting from following row cannot have preceding rows"
        }
        (Following(_), CurrentRow) => {
            "frame starting from following row cannot end with current row"
        }
        _ => return Ok(()),
    }))
}

/// What PostgreSQL has not either.
fn refuse_forms(f: &ast::Function, plain: bool) -> Result<()> {
    let ast::FunctionArguments::List(l) = &f.args else {
        return Ok(());
    };
    let ordered = l
        .clauses
        .iter()
        .any(|c| matches!(c, ast::FunctionArgumentClause::OrderBy(_)));
    let refused = [
        (
            l.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct),
            "DISTINCT is not implemented for window functions",
        ),
        (
            ordered,
            "aggregate ORDER BY is not implemented for window functions",
        ),
        (
            plain && f.filter.is_some(),
            "FILTER is not implemented for non-aggregate window functions",
        ),
    ];
    match refused.iter().find(|(r, _)| *r) {
        Some((_, what)) => Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, *what)),
        None => Ok(()),
    }
}
