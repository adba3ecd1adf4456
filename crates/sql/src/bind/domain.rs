//! Domains in expressions: a cast to one is a cast to what it is made of, with its rules behind.
//!
//! `x::d` computes x once into a slot and asks the rules with the slot as VALUE. The type of the result is the base type.
//!
//! Left out on purpose: arrays of domains (0A000), and a type of its own for the planner: operators are those of the base type.

use super::{Binder, Bound, Env, Scope, ScopeColumn, ScopeRel, parse_expr};
use crate::catalog::user_types;
use crate::expr::{Call, Expr, Slot};
use crate::functions::{EvalContext, Kind, Resolved, Volatility};
use base::schema::{Domain, TypeDef};
use base::{ColumnType, Error, Result, SqlState, Type, Value};
use sqlparser::ast::DataType;

/// How often a statement binds the rules of domains at most, those inside of other domains' rules among them.
const MOST_USES: usize = 1_000;

/// 23502 and 23514 for a value that does not keep the rules of a domain.
pub fn violated(domain: &str, check: Option<&str>) -> Error {
    match check {
        None => Error::new(
            SqlState::NOT_NULL_VIOLATION,
            format!("domain {domain} does not allow null values"),
        ),
        Some(name) => Error::new(
            SqlState::CHECK_VIOLATION,
            format!("value for domain {domain} violates check constraint \"{name}\""),
        )
        .constraint(name),
    }
}

/// The value, if it keeps the rules. Its arguments: the value, the domain's name, and whether NULL is refused; then pairs of a check's name
/// and the check's answer.
fn keep(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    if a[0].is_null() && a[2].as_bool() == Some(true) {
        return Err(violated(&text(&a[1]), None));
    }
    for pair in a[3..].chunks_exact(2) {
        if pair[1].as_bool() == Some(false) {
            return Err(violated(&text(&a[1]), Some(&text(&pair[0]))));
        }
    }
    Ok(a[0].clone())
}

impl Binder<'_> {
    /// A type with its text: 42704.
    pub fn type_written(&mut self, ty: &DataType) -> Result<(String, ColumnType)> {
        let text = ty.to_string();
        let to = self.type_named(&text)?;
        Ok((text, to))
    }

    /// CAST to the type of this name.
    pub fn cast_to(&mut self, b: Bound, text: &str, to: ColumnType) -> Result<Bound> {
        let bound = self.explicit_cast(b, to)?;
        let schema = self.cx.catalog.schema.clone();
        let found = user_types::user_type(&schema, self.cx.search_path, text);
        let built_in = || crate::ddl::type_from_text(text).is_ok();
        match found {
            Some((t, false)) if t.def.is_domain() && !built_in() => self.kept(bound, &t.def),
            _ => Ok(bound),
        }
    }

    fn kept(&mut self, value: Bound, def: &TypeDef) -> Result<Bound> {
        let base::schema::TypeKind::Domain(domain) = &def.kind else {
            return Ok(value);
        };
        self.domain_uses += 1;
        if self.domains.contains(&def.id) || self.domain_uses > MOST_USES {
            return Err(Error::new(
                SqlState::STATEMENT_TOO_COMPLEX,
                format!(
                    "the rules of domain {} name domains without an end",
                    def.name
                ),
            ));
        }
        let slot = self.slot(format!("VALUE of {}", def.name));
        let shown = crate::types::ident::quote_ident(&def.name);
        let mut args = vec![
            Expr::Slot(slot),
            Expr::Const(Value::from(shown)),
            Expr::Const(Value::Bool(domain.not_null)),
        ];
        let mut types = vec![value.ty.ty, Type::Text, Type::Bool];
        self.domains.push(def.id);
        let checks = self.domain_checks(domain, slot, value.ty);
        self.domains.pop();
        for (name, check) in checks? {
            args.extend([Expr::Const(Value::from(name)), check]);
            types.extend([Type::Text, Type::Bool]);
        }
        let f = Resolved {
            name: "domain",
            args: types,
            ret: value.ty.ty,
            strict: false,
            // Not computed while a statement is planned: an error belongs to the run.
            volatility: Volatility::Stable,
            kind: Kind::Scalar(keep),
            columns: &[],
        };
        let expr = Expr::Let {
            slot,
            value: Box::new(value.expr),
            body: Box::new(Expr::Call(Box::new(Call { f, args, op: None }))),
        };
        Ok(Bound { expr, ty: value.ty })
    }

    /// Names and conditions of a domain's checks, over a value in this slot.
    pub fn domain_checks(
        &mut self,
        domain: &Domain,
        slot: Slot,
        ty: ColumnType,
    ) -> Result<Vec<(String, Expr)>> {
        let mut bound = vec![];
        let around = self.in_rule.replace("check constraint");
        for c in &domain.checks {
            let root = Scope::root();
            let mut scope = Scope::inside(&root);
            scope.add(ScopeRel {
                alias: String::new(),
                schema: None,
                columns: vec![ScopeColumn {
                    name: "value".into(),
                    expr: Expr::Slot(slot),
                    ty,
                    origin: (0, 0),
                }],
                system: None,
            })?;
            let mut env = Env::plain(&scope, "check constraints");
            let e = self.expr(&parse_expr(&c.expr)?, &mut env)?;
            bound.push((c.name.clone(), self.condition(e, "CHECK")?));
        }
        self.in_rule = around;
        Ok(bound)
    }
}
