//! Conditions as PostgreSQL prints them: `amount > 0` over a numeric column is `amount > 0::numeric`.
//!
//! PostgreSQL prints its parsed form, in which every literal has a type and IN and BETWEEN are gone. We give literals the type of
//! the column they meet, and place parentheses by the rules of `ruleutils.c`: everywhere, or, when pretty, where a reader
//! needs them. Syntax that is not known here is printed as it was written.
//!
//! Left out on purpose: casts of function arguments.

use crate::ddl::{quote_ident, quote_literal};
use crate::types::typename::{cast_name, format_type};
use base::Type;
use base::schema::TableDef;
use sqlparser::ast::{BinaryOperator as B, Expr, UnaryOperator as U, Value as V};

/// How tightly a printed expression holds together.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Simple,
    Cast,
    /// An operator, with its rank if it is arithmetic.
    Op(u8),
    Any,
    And,
    Or,
    Not,
}

struct Printer<'a> {
    def: &'a TableDef,
    pretty: bool,
}

/// A condition over the table's columns; `None` for syntax that is not known here. Not `pretty`, it has parentheses outside.
pub(super) fn condition(def: &TableDef, e: &Expr, pretty: bool) -> Option<String> {
    let p = Printer { def, pretty };
    let (text, class) = p.show(e)?;
    Some(match (pretty, class) {
        (false, Class::Op(_) | Class::And | Class::Or | Class::Not | Class::Any) => {
            format!("({text})")
        }
        _ => text,
    })
}

impl Printer<'_> {
    fn type_of(&self, e: &Expr) -> Option<Type> {
        match e {
            Expr::Nested(e) => self.type_of(e),
            Expr::Identifier(i) => {
                let name = crate::catalog::fold(i);
                let c = self
                    .def
                    .columns
                    .iter()
                    .find(|c| !c.dropped && c.name == name);
                c.map(|c| c.ty().ty)
            }
            Expr::BinaryOp { left, right, op } if arithmetic(op).is_some() => {
                self.type_of(left).or_else(|| self.type_of(right))
            }
            Expr::Value(v) => match &v.value {
                V::Number(n, _) if n.contains(['.', 'e', 'E']) => Some(Type::Numeric),
                V::Number(..) => Some(Type::Int4),
                V::Boolean(_) => Some(Type::Bool),
                _ => None,
            },
            _ => None,
        }
    }

    /// The type that the items of IN get, if it is known; none when it cannot be written here.
    fn type_of_items(&self, e: &Expr) -> Option<Option<Type>> {
        let ty = self.type_of(e);
        (!matches!(ty, Some(Type::User(_)))).then_some(ty)
    }

    fn cast(&self, text: String, class: Class, ty: &str) -> (String, Class) {
        match self.pretty && matches!(class, Class::Simple | Class::Cast) {
            true => (format!("{text}::{ty}"), Class::Cast),
            false => (format!("({text})::{ty}"), Class::Cast),
        }
    }

    /// One side of an operator whose other side has type `other`.
    fn operand(&self, e: &Expr, other: Option<Type>) -> Option<(String, Class)> {
        if let Expr::Value(v) = e {
            match &v.value {
                V::SingleQuotedString(s) | V::EscapedStringLiteral(s) => {
                    let ty = match other {
                        None | Some(Type::Varchar) => Type::Text,
                        Some(t) => t,
                    };
                    return Some((literal(s, ty), Class::Simple));
                }
                V::Number(n, _) if !n.contains(['.', 'e', 'E']) => {
                    if let Some(t @ (Type::Numeric | Type::Float8 | Type::Float4)) = other {
                        let wide = if t == Type::Numeric { t } else { Type::Float8 };
                        return Some(self.cast(n.clone(), Class::Simple, &format_type(wide, -1)));
                    }
                }
                _ => {}
            }
        }
        let (text, class) = self.show(e)?;
        // varchar has no operators of its own.
        let string = other.is_none_or(Type::is_string);
        match self.type_of(e) {
            Some(Type::Varchar) if string => Some(self.cast(text, class, "text")),
            _ => Some((text, class)),
        }
    }

    fn wrap(&self, (text, class): (String, Class), inside: Class) -> String {
        let bare = match class {
            Class::Simple | Class::Cast => true,
            _ if !self.pretty => false,
            Class::Op(rank) => match inside {
                Class::Op(outer) => rank > 0 && outer > 0 && rank > outer,
                Class::And | Class::Or | Class::Not => true,
                _ => false,
            },
            Class::And => matches!(inside, Class::And | Class::Or),
            Class::Or => inside == Class::Or,
            Class::Any | Class::Not => false,
        };
        if bare { text } else { format!("({text})") }
    }

    fn binary(&self, l: &Expr, op: &str, r: &Expr, class: Class) -> Option<(String, Class)> {
        let left = self.operand(l, self.type_of(r))?;
        let right = self.operand(r, self.type_of(l))?;
        let text = format!(
            "{} {op} {}",
            self.wrap(left, class),
            self.wrap(right, class)
        );
        Some((text, class))
    }

    fn show(&self, e: &Expr) -> Option<(String, Class)> {
        let logic = |l: &Expr, word: &str, r: &Expr, class: Class| {
            let (l, r) = (self.show(l)?, self.show(r)?);
            let flat = |x: (String, Class)| match x.1 == class {
                true => x.0,
                false => self.wrap(x, class),
            };
            Some((format!("{} {word} {}", flat(l), flat(r)), class))
        };
        match e {
            Expr::Nested(e) => self.show(e),
            Expr::Identifier(i) => Some((quote_ident(&crate::catalog::fold(i)), Class::Simple)),
            Expr::Value(v) => Some(match &v.value {
                V::Number(n, _) => (n.clone(), Class::Simple),
                V::Boolean(b) => (b.to_string(), Class::Simple),
                V::Null => ("NULL".into(), Class::Simple),
                v => (literal(string(v)?, Type::Text), Class::Simple),
            }),
            Expr::UnaryOp { op: U::Not, expr } => {
                let inner = self.show(expr)?;
                Some((format!("NOT {}", self.wrap(inner, Class::Not)), Class::Not))
            }
            Expr::UnaryOp { op: U::Minus, expr } => match &**expr {
                Expr::Value(v) => Some((format!("'-{v}'::integer"), Class::Simple)),
                _ => None,
            },
            Expr::BinaryOp { left, op, right } => match op {
                B::And => logic(left, "AND", right, Class::And),
                B::Or => logic(left, "OR", right, Class::Or),
                B::Eq | B::NotEq | B::Lt | B::LtEq | B::Gt | B::GtEq => {
                    self.binary(left, &op.to_string(), right, Class::Op(0))
                }
                B::StringConcat => self.binary(left, "||", right, Class::Op(0)),
                _ => self.binary(left, &op.to_string(), right, Class::Op(arithmetic(op)?)),
            },
            Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let (a, b, word, class) = match negated {
                    false => (">=", "<=", "AND", Class::And),
                    true => ("<", ">", "OR", Class::Or),
                };
                let a = self.binary(expr, a, low, Class::Op(0))?;
                let b = self.binary(expr, b, high, Class::Op(0))?;
                Some((
                    format!("{} {word} {}", self.wrap(a, class), self.wrap(b, class)),
                    class,
                ))
            }
            Expr::InList {
                expr,
                list,
                negated,
            } => {
                let ty = self.type_of_items(expr)?;
                let item = |e: &Expr| match e {
                    Expr::Value(v) => match string(&v.value) {
                        Some(s) => Some(literal(s, ty.unwrap_or(Type::Text))),
                        None => self.operand(e, ty).map(|x| x.0),
                    },
                    _ => None,
                };
                let items: Vec<String> = list.iter().map(item).collect::<Option<_>>()?;
                let mut array = format!("ARRAY[{}]", items.join(", "));
                let mut left = self.show(expr)?;
                if ty == Some(Type::Varchar) {
                    left = self.cast(left.0, left.1, "text");
                    array = match self.pretty {
                        true => format!("{array}::text[]"),
                        false => format!("({array})::text[]"),
                    };
                }
                let op = if *negated { "<> ALL" } else { "= ANY" };
                let left = self.wrap(left, Class::Any);
                Some((format!("{left} {op} ({array})"), Class::Any))
            }
            Expr::IsNull(e) => {
                let e = self.show(e)?;
                Some((
                    format!("{} IS NULL", self.wrap(e, Class::Any)),
                    Class::Op(0),
                ))
            }
            Expr::IsNotNull(e) => {
                let e = self.show(e)?;
                Some((
                    format!("{} IS NOT NULL", self.wrap(e, Class::Any)),
                    Class::Op(0),
                ))
            }
            Expr::Like {
                negated,
                expr,
                pattern,
                escape_char: None,
                any: false,
            } => self.binary(
                expr,
                if *negated { "!~~" } else { "~~" },
                pattern,
                Class::Op(0),
            ),
            Expr::Function(_) => Some((crate::printed::printed(e), Class::Simple)),
            _ => None,
        }
    }
}

/// The characters of a string.
fn string(v: &V) -> Option<&str> {
    match v {
        V::SingleQuotedString(s) | V::EscapedStringLiteral(s) => Some(s),
        _ => None,
    }
}

/// A value of a type in a schema of users stands as it is: the name of the type depends on the search path.
fn literal(s: &str, ty: Type) -> String {
    let name = match ty {
        Type::User(_) | Type::UserArray(_) | Type::Citext | Type::CitextArray => {
            return quote_literal(s);
        }
        t => cast_name(t),
    };
    format!("{}::{name}", quote_literal(s))
}

/// The rank of an arithmetic operator: a higher one binds more tightly.
fn arithmetic(op: &B) -> Option<u8> {
    match op {
        B::Plus | B::Minus => Some(1),
        B::Multiply | B::Divide | B::Modulo => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddl::expr_text::parse;
    use crate::ddl::tests::Bench;

    /// The right-hand sides are PostgreSQL 15's.
    #[test]
    fn conditions_read_as_postgresql_prints_them() {
        let mut b = Bench::new();
        b.run("CREATE TABLE t (amount numeric(10,2), kind varchar(5), code char(3), day date, small smallint, calc int, id int, name text, f float8)")
            .unwrap();
        let t = b.schema.tables().next().unwrap().clone();
        let pretty = |s: &str| condition(&t.def, &parse(s).unwrap(), true).unwrap();
        let full = |s: &str| condition(&t.def, &parse(s).unwrap(), false).unwrap();
        assert_eq!(
            pretty("amount > 0 AND amount <> 7.5"),
            "amount > 0::numeric AND amount <> 7.5"
        );
        assert_eq!(
            full("amount > 0 AND amount <> 7.5"),
            "((amount > (0)::numeric) AND (amount <> 7.5))"
        );
        assert_eq!(
            pretty("kind IN ('a', 'b') OR small BETWEEN 1 AND 5"),
            "(kind::text = ANY (ARRAY['a'::character varying, 'b'::character varying]::text[])) OR small >= 1 AND small <= 5"
        );
        assert_eq!(
            full("kind IN ('a', 'b') OR small BETWEEN 1 AND 5"),
            "(((kind)::text = ANY ((ARRAY['a'::character varying, 'b'::character varying])::text[])) OR ((small >= 1) AND (small <= 5)))"
        );
        assert_eq!(pretty("calc + 1 > id * 2"), "(calc + 1) > (id * 2)");
        assert_eq!(pretty("code <> 'no'"), "code <> 'no'::bpchar");
        assert_eq!(pretty("day > '2000-01-01'"), "day > '2000-01-01'::date");
        assert_eq!(
            full("id > 0 AND small < 100 AND id < 9"),
            "((id > 0) AND (small < 100) AND (id < 9))"
        );
        assert_eq!(pretty("name IS NOT NULL"), "name IS NOT NULL");
        assert_eq!(full("f >= 0"), "(f >= (0)::double precision)");
    }
}
