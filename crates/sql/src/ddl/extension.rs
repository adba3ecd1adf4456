//! CREATE and DROP EXTENSION.
//!
//! `plpgsql` is said to be there, as tools expect it. Texts of defaults, checks and views call the functions of an extension by name,
//! so an extension that such a text may need is not dropped.
//!
//! Left out on purpose (0A000): DROP EXTENSION … CASCADE of one that is needed, ALTER EXTENSION.

use super::expr_text;
use super::work::Work;
use crate::catalog;
use crate::extensions::KNOWN;
use crate::functions::registry;
use base::schema::{Column, Extension, Object, PUBLIC, Relation, TypeKind};
use base::{Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{CreateExtension, DropExtension, ReferentialAction};
use sqlparser::tokenizer::Token;

/// Whether the text calls a function of the extension, or casts to its type.
fn needs(text: &str, extension: &str) -> bool {
    let tokens = expr_text::tokens(text);
    let solid: Vec<&Token> = tokens
        .iter()
        .filter(|t| !matches!(t, Token::Whitespace(_)))
        .collect();
    let calls = solid.windows(2).any(|w| {
        let name = expr_text::word(w[0]);
        let of = name.as_deref().and_then(registry::extension_of);
        matches!(w[1], Token::LParen) && of == Some(extension)
    });
    calls || extension == "citext" && expr_text::casts_to(text, "citext")
}

fn of_type(ty: Type, extension: &str) -> bool {
    ty.extension() == Some(extension)
}

impl Work<'_> {
    pub(super) fn create_extension(&mut self, c: &CreateExtension) -> Result<String> {
        let name = catalog::fold(&c.name);
        let known = KNOWN.iter().find(|k| k.name == name);
        if known.is_none() && name != "plpgsql" {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("extension \"{name}\" is not available"),
            ));
        }
        let there = self.schema.extension(&name).is_some();
        let Some(known) = known.filter(|_| !there) else {
            let what = format!("extension \"{name}\" already exists");
            if !c.if_not_exists {
                return Err(Error::new(SqlState::DUPLICATE_OBJECT, what));
            }
            self.notice(SqlState::DUPLICATE_OBJECT, format!("{what}, skipping"));
            return Ok("CREATE EXTENSION".into());
        };
        if !self.superuser() {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied to create extension \"{name}\""),
            )
            .hint("Must be superuser to create this extension."));
        }
        if let Some(v) = &c.version
            && v.value != known.version
        {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!(
                    "extension \"{name}\" has no installation script nor update path for version \"{}\"",
                    v.value
                ),
            ));
        }
        let namespace = match &c.schema {
            Some(s) => self.namespace(&catalog::fold(s))?,
            None => {
                let mut path = catalog::namespaces(&self.schema, self.ctx.search_path);
                path.find(|n| *n >= base::id::FIRST_USER_OID || *n == PUBLIC)
                    .unwrap_or(PUBLIC)
            }
        };
        let made = Extension {
            id: self.oid(),
            name,
            version: known.version.into(),
            namespace,
            owner: self.ctx.role,
        };
        self.put(Object::Extension(made));
        Ok("CREATE EXTENSION".into())
    }

    pub(super) fn drop_extensions(&mut self, d: &DropExtension) -> Result<String> {
        let cascade = matches!(d.cascade_or_restrict, Some(ReferentialAction::Cascade));
        for name in &d.names {
            let name = catalog::fold(name);
            if name == "plpgsql" {
                return Err(Error::unsupported("dropping extension plpgsql"));
            }
            let Some(e) = self.schema.extension(&name).cloned() else {
                let what = format!("extension \"{name}\" does not exist");
                self.drop_missing(SqlState::UNDEFINED_OBJECT, what, d.if_exists)?;
                continue;
            };
            self.must_own("extension", &name, e.owner)?;
            if let Some(by) = self.needs_extension(&name) {
                if cascade {
                    return Err(Error::unsupported(format!(
                        "dropping extension \"{name}\" with CASCADE while {by} needs it"
                    )));
                }
                let what =
                    format!("cannot drop extension {name} because other objects depend on it");
                return Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, what)
                    .detail(format!("{by} depends on extension {name}"))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            self.drop_comments(|on, _| on == e.id);
            self.drop(e.id);
        }
        Ok("DROP EXTENSION".into())
    }

    /// The extension in one of these namespaces, which may not be dropped before it.
    pub(super) fn extension_in(&self, namespace: Oid) -> Option<String> {
        let mut all = self.schema.extensions();
        let found = all.find(|e| e.namespace == namespace);
        found.map(|e| e.name.clone())
    }

    /// What cannot be without the extension, in words.
    fn needs_extension(&self, extension: &str) -> Option<String> {
        let column = |c: &Column| {
            let text = c.default.as_deref();
            let named = text.is_some_and(|t| needs(t, extension));
            (!c.dropped || c.is_hidden()) && (named || of_type(c.ty().ty, extension))
        };
        for r in self.schema.relations() {
            let hit = match r {
                Relation::Table(t) => {
                    let mut checks = t.def.checks.iter();
                    t.def.columns.iter().any(column) || checks.any(|c| needs(&c.expr, extension))
                }
                Relation::View(v) => needs(&v.query, extension) || v.columns.iter().any(column),
                Relation::Sequence(_) => false,
            };
            if hit {
                return Some(format!("relation {}", r.name()));
            }
        }
        let types = self.schema.user_types().find(|t| match &t.def.kind {
            TypeKind::Domain(d) => {
                let mut checks = d.checks.iter().map(|c| c.expr.as_str());
                of_type(t.ty, extension)
                    || d.default.iter().any(|d| needs(d, extension))
                    || checks.any(|c| needs(c, extension))
            }
            TypeKind::Composite(_) => {
                let parts = t.ty.composite().expect("a composite type").attributes();
                parts.map(|(_, a)| a.ty.ty).any(|ty| of_type(ty, extension))
            }
            TypeKind::Enum(_) => false,
        });
        types.map(|t| format!("type {}", t.def.name))
    }
}
