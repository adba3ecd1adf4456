//! Compares types, casts, operators and functions with PostgreSQL 15: each line of `golden/expressions.sql` is an expression,
//! the same line of `expressions.out` what PostgreSQL gave for it (`golden/regenerate.sh` asks it again).
//!
//! Expressions are evaluated here straight on the table of functions, without the binder, so that a failure points at
//! types or functions.

use base::{ColumnType, Error, Result, SqlState, Type, Value};
use sql::functions::{EvalContext, Kind, NoSession, lookup_function, lookup_operator};
use sql::types::{OutputSettings, cast, text, typename};
use sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, SelectItem,
    SetExpr, Statement, UnaryOperator,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

struct Typed {
    value: Value,
    ty: ColumnType,
}

struct Evaluator {
    settings: OutputSettings,
}

impl Evaluator {
    fn line(&self, line: &str) -> String {
        match self.parse(line).and_then(|e| self.eval(&e)) {
            Ok(t) if t.value.is_null() => "NULL".into(),
            Ok(t) => {
                let mut out = String::new();
                text::output_column(&t.value, t.ty, &self.settings, &mut out);
                out.replace('\n', "\\n")
            }
            Err(e) => format!("{}: {}", e.code(), e.fields().message),
        }
    }

    fn parse(&self, line: &str) -> Result<Expr> {
        let bad = |e: String| Error::new(SqlState::SYNTAX_ERROR, e);
        let mut all = Parser::parse_sql(&PostgreSqlDialect {}, &format!("select {line}"))
            .map_err(|e| bad(e.to_string()))?;
        let Some(Statement::Query(q)) = all.pop() else {
            return Err(bad("not a query".into()));
        };
        let SetExpr::Select(mut s) = *q.body else {
            return Err(bad("not a select".into()));
        };
        match s.projection.pop() {
            Some(SelectItem::UnnamedExpr(e)) => Ok(e),
            other => Err(bad(format!("{other:?}"))),
        }
    }

    fn operator(&self, op: &str, left: Option<&Expr>, right: &Expr) -> Result<Typed> {
        let left = left.map(|l| self.eval(l)).transpose()?;
        let right = self.eval(right)?;
        let r = lookup_operator(op, left.as_ref().map(|l| l.ty.ty), right.ty.ty)?;
        self.call(&r, left.into_iter().chain([right]).collect())
    }

    fn function(&self, name: &str, args: Vec<Typed>) -> Result<Typed> {
        let types: Vec<Type> = args.iter().map(|a| a.ty.ty).collect();
        self.call(&lookup_function(name, &types)?, args)
    }

    fn call(&self, r: &sql::functions::Resolved, args: Vec<Typed>) -> Result<Typed> {
        let values = args
            .into_iter()
            .zip(&r.args)
            .map(|(a, to)| {
                cast::apply(a.value, a.ty, ColumnType::plain(*to), false, &self.settings)
            })
            .collect::<Result<Vec<_>>>()?;
        let mut ctx = EvalContext {
            settings: &self.settings,
            session: &NoSession,
        };
        assert!(matches!(
            r.kind,
            Kind::Scalar(_) | Kind::Typed(_) | Kind::Cast
        ));
        Ok(Typed {
            value: r.call(&values, &mut ctx)?,
            ty: r.ret.into(),
        })
    }

    fn text(&self, s: &str) -> Typed {
        Typed {
            value: Value::text(s),
            ty: Type::Text.into(),
        }
    }

    fn eval(&self, e: &Expr) -> Result<Typed> {
        let unknown = |value: Value| Typed {
            value,
            ty: Type::Unknown.into(),
        };
        if let Some(n) = constant(e) {
            return self.number(&n);
        }
        match e {
            Expr::Nested(e) => self.eval(e),
            Expr::Value(v) => match &v.value {
                ast::Value::Number(n, _) => self.number(n),
                ast::Value::SingleQuotedString(s) => Ok(unknown(Value::text(s))),
                ast::Value::Boolean(b) => Ok(Typed {
                    value: Value::Bool(*b),
                    ty: Type::Bool.into(),
                }),
                ast::Value::Null => Ok(unknown(Value::Null)),
                v => panic!("{v:?}"),
            },
            Expr::Cast {
                expr, data_type, ..
            } => {
                let from = self.eval(expr)?;
                let to = typename::parse(&data_type.to_string().to_lowercase())?;
                if cast::find(from.ty.ty, to.ty).is_none() {
                    return Err(Error::new(
                        SqlState::CANNOT_COERCE,
                        format!(
                            "cannot cast type {} to {}",
                            typename::format_type(from.ty.ty, -1),
                            typename::format_type(to.ty, -1)
                        ),
                    ));
                }
                Ok(Typed {
                    value: cast::apply(from.value, from.ty, to, true, &self.settings)?,
                    ty: to,
                })
            }
            Expr::UnaryOp { op, expr } => match (op, &**expr) {
                (UnaryOperator::Minus, e) => self.operator("-", None, e),
                (op, e) => self.operator(&op.to_string(), None, e),
            },
            Expr::BinaryOp { left, op, right } => {
                let op = match op {
                    BinaryOperator::Custom(s) => s.clone(),
                    op => op.to_string(),
                };
                self.operator(&op, Some(left), right)
            }
            Expr::Like {
                negated,
                expr,
                pattern,
                ..
            } => self.operator(if *negated { "!~~" } else { "~~" }, Some(expr), pattern),
            Expr::ILike {
                negated,
                expr,
                pattern,
                ..
            } => self.operator(if *negated { "!~~*" } else { "~~*" }, Some(expr), pattern),
            Expr::AtTimeZone {
                timestamp,
                time_zone,
            } => self.function(
                "timezone",
                vec![self.eval(time_zone)?, self.eval(timestamp)?],
            ),
            Expr::Extract { field, expr, .. } => {
                let f = field.to_string().trim_matches('\'').to_lowercase();
                self.function("extract", vec![self.text(&f), self.eval(expr)?])
            }
            Expr::Position { expr, r#in } => {
                self.function("position", vec![self.eval(r#in)?, self.eval(expr)?])
            }
            Expr::Ceil { expr, .. } => self.function("ceil", vec![self.eval(expr)?]),
            Expr::Floor { expr, .. } => self.function("floor", vec![self.eval(expr)?]),
            Expr::Overlay {
                expr,
                overlay_what,
                overlay_from,
                overlay_for,
            } => {
                let mut args = vec![
                    self.eval(expr)?,
                    self.eval(overlay_what)?,
                    self.eval(overlay_from)?,
                ];
                if let Some(f) = overlay_for {
                    args.push(self.eval(f)?);
                }
                self.function("overlay", args)
            }
            Expr::Substring {
                expr,
                substring_from,
                substring_for,
                shorthand,
                ..
            } => {
                let parts = [Some(expr), substring_from.as_ref(), substring_for.as_ref()];
                let args = parts.into_iter().flatten().map(|e| self.eval(e));
                self.function(
                    if *shorthand { "substr" } else { "substring" },
                    args.collect::<Result<_>>()?,
                )
            }
            Expr::Trim {
                expr,
                trim_where,
                trim_what,
                ..
            } => {
                let name = match trim_where {
                    Some(ast::TrimWhereField::Leading) => "ltrim",
                    Some(ast::TrimWhereField::Trailing) => "rtrim",
                    _ => "btrim",
                };
                let args = [Some(expr), trim_what.as_ref()];
                let args = args.into_iter().flatten().map(|e| self.eval(e));
                self.function(name, args.collect::<Result<_>>()?)
            }
            Expr::Function(f) => {
                let mut args = Vec::new();
                if let FunctionArguments::List(l) = &f.args {
                    for a in &l.args {
                        let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = a else {
                            panic!("{a:?}");
                        };
                        args.push(self.eval(e)?);
                    }
                }
                self.function(&f.name.to_string().to_lowercase(), args)
            }
            e => panic!("{e:?}"),
        }
    }

    /// A literal's type: the first of int4, int8, numeric that holds it.
    fn number(&self, n: &str) -> Result<Typed> {
        if let Ok(x) = n.parse::<i32>() {
            return Ok(Typed {
                value: Value::Int4(x),
                ty: Type::Int4.into(),
            });
        }
        if let Ok(x) = n.parse::<i64>() {
            return Ok(Typed {
                value: Value::Int8(x),
                ty: Type::Int8.into(),
            });
        }
        Ok(Typed {
            value: text::input(n, Type::Numeric.into(), &self.settings)?,
            ty: Type::Numeric.into(),
        })
    }
}

/// A number, the minus signs before it folded in as PostgreSQL's grammar does.
fn constant(e: &Expr) -> Option<String> {
    match e {
        Expr::Nested(e) => constant(e),
        Expr::Value(v) => match &v.value {
            ast::Value::Number(n, _) => Some(n.clone()),
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => constant(expr).map(|n| match n.strip_prefix('-') {
            Some(n) => n.to_string(),
            None => format!("-{n}"),
        }),
        _ => None,
    }
}

#[test]
fn expressions_give_what_postgresql_gives() {
    let sql = include_str!("golden/expressions.sql");
    let out = include_str!("golden/expressions.out");
    let lines: Vec<&str> = sql.lines().filter(|l| !l.starts_with("--")).collect();
    let wants: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), wants.len(), "regenerate the expected results");
    let e = Evaluator {
        settings: OutputSettings::default(),
    };
    let mut wrong = Vec::new();
    for (line, want) in lines.iter().zip(wants) {
        let got = e.line(line);
        if got != *want {
            wrong.push(format!("{line}\n    got  {got}\n    want {want}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        lines.len(),
        wrong.join("\n")
    );
}
