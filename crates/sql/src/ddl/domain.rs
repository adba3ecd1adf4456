//! CREATE, ALTER and DROP DOMAIN: the grammar, and what it does to the schema.
//!
//! A column of a domain has the type that the domain is made of, and the domain's number beside it. When a row is written its rules are
//! asked ([`crate::rules`]), and a change of the rules asks all rows that are there, as a change of a table's CHECKs does.
//!
//! A column takes the domain's DEFAULT when it is made. A later SET DEFAULT counts for columns that are made after it.
//!
//! Left out on purpose: domains over domains and arrays of domains (0A000), COLLATE, NOT VALID.

use super::extra::{Extra, Words};
use super::user_type::TypeStatement;
use super::work::Work;
use super::{expr_text, names};
use crate::catalog;
use base::schema::{Check, Column, Domain, Object, TableDef, TypeDef, TypeKind};
use base::{ColumnType, Error, Oid, Result, SqlState};
use sqlparser::ast::{DataType, Expr, Ident, ObjectName};
use sqlparser::tokenizer::Token;

/// A part of CREATE DOMAIN, or of ALTER DOMAIN … ADD.
#[derive(Clone, Debug)]
pub enum Part {
    Default(Expr),
    NotNull(bool),
    Check(Option<Ident>, Expr),
}

/// What ALTER DOMAIN does.
#[derive(Clone, Debug)]
pub enum Alter {
    Default(Option<Expr>),
    NotNull(bool),
    Add(Part),
    DropConstraint { name: Ident, if_exists: bool },
    RenameConstraint { from: Ident, to: Ident },
    Rename(Ident),
}

impl Words<'_> {
    /// The statement, if it is one about domains.
    pub(super) fn domain(&mut self) -> Result<Option<Extra>> {
        if self.eat("create domain") {
            return self.create_domain().map(Some);
        }
        if self.eat("drop domain") {
            let if_exists = self.eat("if exists");
            let mut names = vec![self.name()?];
            while self.0.consume_token(&Token::Comma) {
                names.push(self.name()?);
            }
            let cascade = self.eat("cascade");
            let _ = !cascade && self.eat("restrict");
            return Ok(Some(Extra::OfType(Box::new(TypeStatement::DropDomain {
                names,
                if_exists,
                cascade,
            }))));
        }
        if !self.eat("alter domain") {
            return Ok(None);
        }
        let name = self.name()?;
        if let Some(e) = self.owner_or_schema(&name)? {
            return Ok(Some(e));
        }
        let change = Box::new(self.alter_domain()?);
        Ok(Some(Extra::OfType(Box::new(TypeStatement::AlterDomain {
            name,
            change,
        }))))
    }

    fn expression(&mut self) -> Result<Expr> {
        self.0.parse_expr().map_err(|_| self.wrong())
    }

    fn part(&mut self) -> Result<Option<Part>> {
        let name = match self.eat("constraint") {
            true => Some(self.ident()?),
            false => None,
        };
        Ok(Some(if self.eat("not null") {
            Part::NotNull(true)
        } else if self.eat("null") {
            Part::NotNull(false)
        } else if self.eat("check") {
            let open = self.0.consume_token(&Token::LParen);
            let e = self.expression()?;
            if !open || !self.0.consume_token(&Token::RParen) {
                return Err(self.wrong());
            }
            Part::Check(name, e)
        } else if name.is_some() {
            return Err(self.wrong());
        } else if self.eat("default") {
            Part::Default(self.expression()?)
        } else {
            return Ok(None);
        }))
    }

    fn create_domain(&mut self) -> Result<Extra> {
        let name = self.name()?;
        self.eat("as");
        let data_type = self.0.parse_data_type().map_err(|_| self.wrong())?;
        if self.at("collate") {
            return Err(Error::unsupported("COLLATE of a domain"));
        }
        let mut parts = vec![];
        while let Some(part) = self.part()? {
            match part {
                // The parser takes the NOT NULL behind a DEFAULT for a test.
                Part::Default(Expr::IsNotNull(e)) => {
                    parts.extend([Part::Default(*e), Part::NotNull(true)]);
                }
                part => parts.push(part),
            }
        }
        Ok(Extra::OfType(Box::new(TypeStatement::CreateDomain {
            name,
            data_type,
            parts,
        })))
    }

    fn alter_domain(&mut self) -> Result<Alter> {
        Ok(if self.eat("set default") {
            Alter::Default(Some(self.expression()?))
        } else if self.eat("drop default") {
            Alter::Default(None)
        } else if self.eat("set not null") {
            Alter::NotNull(true)
        } else if self.eat("drop not null") {
            Alter::NotNull(false)
        } else if self.eat("rename constraint") {
            let from = self.ident()?;
            self.expect("to")?;
            let to = self.ident()?;
            Alter::RenameConstraint { from, to }
        } else if self.eat("rename to") {
            Alter::Rename(self.ident()?)
        } else if self.eat("drop constraint") {
            let if_exists = self.eat("if exists");
            let name = self.ident()?;
            let _ = self.eat("cascade") || self.eat("restrict");
            Alter::DropConstraint { name, if_exists }
        } else if self.eat("add") {
            let part = self.part()?.ok_or_else(|| self.wrong())?;
            if self.at("not valid") {
                return Err(Error::unsupported("NOT VALID of a domain's constraint"));
            }
            Alter::Add(part)
        } else if self.at("validate constraint") {
            return Err(Error::unsupported("ALTER DOMAIN VALIDATE CONSTRAINT"));
        } else {
            return Err(self.wrong());
        })
    }
}

fn no_constraint(name: &str, domain: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_OBJECT,
        format!("constraint \"{name}\" of domain \"{domain}\" does not exist"),
    )
}

/// A table of one column, VALUE, for the binder.
pub(super) fn value_table(def: &TypeDef, ty: ColumnType) -> TableDef {
    TableDef {
        id: 0,
        storage: 0,
        namespace: def.namespace,
        name: def.name.clone(),
        owner: def.owner,
        row_version: 0,
        columns: vec![Column::new("value", ty)],
        indexes: vec![],
        checks: vec![],
        foreign_keys: vec![],
        acl: vec![],
        rewrite_of: None,
    }
}

impl Work<'_> {
    pub(super) fn create_domain(
        &mut self,
        name: &ObjectName,
        data_type: &DataType,
        parts: &[Part],
    ) -> Result<String> {
        let (namespace, name) = self.target(name)?;
        self.type_must_be_free(namespace, &name)?;
        if self.domain_of(data_type)?.is_some() {
            return Err(Error::unsupported("a domain over a domain"));
        }
        let ty = self.storable(data_type, &name)?;
        if ty.ty.element().unwrap_or(ty.ty).composite().is_some() {
            return Err(Error::unsupported("a domain over a composite type"));
        }
        let mut def = TypeDef {
            id: self.oid(),
            array: self.oid(),
            namespace,
            name,
            owner: self.ctx.role,
            acl: self.type_born_with(namespace),
            kind: TypeKind::Domain(Domain {
                base: ty.ty.oid(),
                typmod: ty.typmod,
                not_null: false,
                default: None,
                checks: vec![],
            }),
        };
        let (mut null, mut default) = (None, false);
        for p in parts {
            let conflict = match p {
                Part::NotNull(on) => null.replace(*on).is_some_and(|was| was != *on),
                Part::Default(_) => std::mem::replace(&mut default, true),
                Part::Check(..) => false,
            };
            if conflict {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    "conflicting or redundant parts of a domain",
                ));
            }
            self.add_part(&mut def, ty, p)?;
        }
        self.put(Object::Type(def));
        Ok("CREATE DOMAIN".into())
    }

    fn add_part(&mut self, def: &mut TypeDef, ty: ColumnType, part: &Part) -> Result<()> {
        match part {
            Part::NotNull(on) => rules(def).not_null = *on,
            Part::Default(e) => {
                let column = Column::new("value", ty);
                let text = self.default_text(&column, e)?;
                let null = text.eq_ignore_ascii_case("null");
                rules(def).default = (!null).then_some(text);
            }
            Part::Check(name, e) => {
                let expr = expr_text::pin_types(self, &expr_text::print(e)?);
                let parsed = expr_text::parse(&expr)?;
                let table = value_table(def, ty);
                let (schema, path) = (&self.schema, self.ctx.search_path);
                self.ctx.analyzer.check(schema, path, &table, &parsed)?;
                let taken = |d: &mut TypeDef, n: &str| rules(d).checks.iter().any(|c| c.name == n);
                let name = match name {
                    Some(n) => self.name(n),
                    None => {
                        let first = def.name.clone();
                        let mut n = 0;
                        loop {
                            let label = match n {
                                0 => "check".to_owned(),
                                n => format!("check{n}"),
                            };
                            let name = names::make(&first, "", &label);
                            if !taken(def, &name) {
                                break name;
                            }
                            n += 1;
                        }
                    }
                };
                if taken(def, &name) {
                    return Err(Error::new(
                        SqlState::DUPLICATE_OBJECT,
                        format!(
                            "constraint \"{name}\" for domain \"{}\" already exists",
                            def.name
                        ),
                    ));
                }
                let id = self.oid();
                rules(def).checks.push(Check {
                    id,
                    name,
                    expr,
                    not_valid: false,
                });
            }
        }
        Ok(())
    }

    pub(super) fn own_domain(&self, name: &ObjectName) -> Result<TypeDef> {
        let def = self.own_type(name)?;
        match def.kind {
            TypeKind::Domain(_) => Ok(def),
            TypeKind::Enum(_) | TypeKind::Composite(_) => Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{}\" is not a domain", def.name),
            )),
        }
    }

    pub(super) fn alter_domain(&mut self, name: &ObjectName, change: &Alter) -> Result<String> {
        let mut def = self.own_domain(name)?;
        let shown = def.name.clone();
        let TypeKind::Domain(d) = &def.kind else {
            unreachable!("seen above");
        };
        let ty = ColumnType {
            ty: self.schema.type_numbered(d.base).expect("in the schema"),
            typmod: d.typmod,
        };
        match change {
            Alter::Default(None) => rules(&mut def).default = None,
            Alter::Default(Some(e)) => self.add_part(&mut def, ty, &Part::Default(e.clone()))?,
            Alter::NotNull(on) => rules(&mut def).not_null = *on,
            Alter::Add(part) => self.add_part(&mut def, ty, part)?,
            Alter::DropConstraint { name, if_exists } => {
                let name = catalog::fold(name);
                let checks = &mut rules(&mut def).checks;
                let there = checks.len();
                checks.retain(|c| c.name != name);
                if checks.len() == there {
                    if !if_exists {
                        return Err(no_constraint(&name, &shown));
                    }
                    let what = format!(
                        "constraint \"{name}\" of domain \"{shown}\" does not exist, skipping"
                    );
                    self.notice(SqlState([b'0'; 5]), what);
                }
            }
            Alter::RenameConstraint { from, to } => {
                let (from, to) = (catalog::fold(from), self.name(to));
                let checks = &mut rules(&mut def).checks;
                if checks.iter().any(|c| c.name == to) {
                    return Err(Error::new(
                        SqlState::DUPLICATE_OBJECT,
                        format!("constraint \"{to}\" for domain \"{shown}\" already exists"),
                    ));
                }
                let check = checks.iter_mut().find(|c| c.name == from);
                check.ok_or_else(|| no_constraint(&from, &shown))?.name = to;
            }
            Alter::Rename(to) => {
                let to = self.name(to);
                self.type_must_be_free(def.namespace, &to)?;
                self.refuse_named_in_text(&def, "renaming")?;
                def.name = to;
            }
        }
        self.put_type(def)?;
        Ok("ALTER DOMAIN".into())
    }

    pub(super) fn drop_domains(
        &mut self,
        names: &[ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<String> {
        for name in names {
            if !if_exists || self.find_type(name)?.is_some() {
                self.own_domain(name)?;
            }
        }
        self.drop_types(names, if_exists, cascade)?;
        Ok("DROP DOMAIN".into())
    }

    /// A column of this type, with the rules and the default of a domain.
    pub(super) fn typed_column(
        &self,
        name: String,
        ty: ColumnType,
        written: &DataType,
    ) -> Result<Column> {
        let mut column = Column::new(name, ty);
        if let Some((domain, default)) = self.domain_of(written)? {
            (column.domain, column.default) = (Some(domain), default);
        }
        Ok(column)
    }

    /// The domain that a column of this type keeps.
    pub(super) fn domain_of(&self, ty: &DataType) -> Result<Option<(Oid, Option<String>)>> {
        let text = ty.to_string();
        if super::type_from_text(&text).is_ok() {
            return Ok(None);
        }
        let path: Vec<Oid> = catalog::namespaces(&self.schema, self.ctx.search_path).collect();
        let Some((t, false)) = catalog::user_types::user_type(&self.schema, &path, &text) else {
            return Ok(None);
        };
        let TypeKind::Domain(d) = &t.def.kind else {
            return Ok(None);
        };
        self.may_use(&t.def)?;
        Ok(Some((t.def.id, d.default.clone())))
    }
}

fn rules(def: &mut TypeDef) -> &mut Domain {
    match &mut def.kind {
        TypeKind::Domain(d) => d,
        TypeKind::Enum(_) | TypeKind::Composite(_) => unreachable!("a domain was asked for"),
    }
}
