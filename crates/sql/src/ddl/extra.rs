//! Statements of PostgreSQL that the SQL parser does not know, or reads by another database's grammar.
//!
//! [`parse`] looks at the first words of a statement's tokens and leaves what it does not know to the parser. Some become
//! trees of the parser all the same (`ALTER VIEW v RENAME TO w` is `ALTER TABLE v RENAME TO w`); the rest is [`Extra`].
//!
//! Left out on purpose: grammar of objects that do not exist here; their statements are recognised and refused (0A000).

use super::lock::LockTable;
use super::reorder::reorder_identity;
use super::role::RoleOptions;
use super::sequence::{Options, once};
use super::upkeep::Upkeep;
use super::user_type::TypeStatement;
use base::{Error, Result, SqlState};
use sqlparser::ast::{
    AlterTable, AlterTableOperation, Ident, ObjectName, RenameTableNameKind, Statement,
    helpers::attached_token::AttachedToken,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A statement read here.
#[derive(Clone, Debug)]
pub enum Extra {
    /// One that the parser could have made, with its command tag where that differs.
    Statement(Box<Statement>, Option<&'static str>),
    CreateSequence {
        name: ObjectName,
        if_not_exists: bool,
        options: Options,
        owned_by: Option<ObjectName>,
    },
    CreateUser {
        name: Ident,
        options: RoleOptions,
    },
    AlterSequence {
        name: ObjectName,
        if_exists: bool,
        options: Options,
        owned_by: Option<ObjectName>,
    },
    SetSchema {
        tag: &'static str,
        name: ObjectName,
        if_exists: bool,
        schema: Ident,
    },
    DropIdentity {
        table: ObjectName,
        column: Ident,
        if_exists: bool,
    },
    /// SET GENERATED, SET of a sequence's options, RESTART.
    AlterIdentity {
        table: ObjectName,
        column: Ident,
        if_exists: bool,
        /// ALWAYS, or BY DEFAULT, where it is said.
        always: Option<bool>,
        options: Box<Options>,
    },
    /// ALTER VIEW … SET, with values, or RESET, without.
    ViewOptions {
        name: ObjectName,
        if_exists: bool,
        options: Vec<(String, Option<String>)>,
    },
    /// ALTER COLUMN SET (…), RESET (…).
    ColumnOptions {
        table: ObjectName,
        column: Ident,
        if_exists: bool,
        set: super::split::Options,
        reset: Vec<String>,
    },
    Upkeep(Upkeep),
    /// DROP INDEX without its CONCURRENTLY.
    DropIndexConcurrently(Box<Statement>),
    OfType(Box<TypeStatement>),
    Lock(LockTable),
    /// GRANT role TO role, REVOKE role FROM role, ALTER GROUP.
    RoleGrant(super::membership::RoleGrant),
    DefaultPrivileges(super::default_acl::DefaultPrivileges),
    /// ALTER ROLE … SET, ALTER DATABASE … SET, and RESET.
    StoredSetting(super::settings::StoreSetting),
    /// COMMENT ON CONSTRAINT name ON table.
    CommentOnConstraint {
        name: Ident,
        table: ObjectName,
        text: Option<String>,
    },
    /// Known and refused.
    Refused(String),
}

/// What is refused, by first words.
const REFUSED: &[&str] = &[
    "alter system",
    "alter event trigger",
    "alter extension",
    "alter foreign",
    "alter language",
    "alter large object",
    "alter materialized view",
    "alter procedure",
    "alter publication",
    "alter routine",
    "alter rule",
    "alter server",
    "alter statistics",
    "alter subscription",
    "alter tablespace",
    "alter trigger",
    "create access method",
    "create aggregate",
    "create cast",
    "create conversion",
    "create event trigger",
    "create foreign",
    "create language",
    "create or replace language",
    "create or replace rule",
    "create or replace aggregate",
    "create publication",
    "create rule",
    "create statistics",
    "create subscription",
    "create tablespace",
    "create transform",
    "drop access method",
    "drop aggregate",
    "drop cast",
    "drop conversion",
    "drop event trigger",
    "drop foreign",
    "drop language",
    "drop owned",
    "drop publication",
    "drop rule",
    "drop server",
    "drop statistics",
    "drop subscription",
    "drop tablespace",
    "drop text search",
    "drop transform",
    "import foreign schema",
    "reassign owned",
    "refresh materialized view",
    "security label",
];

/// What ALTER COLUMN … SET changes of an identity column.
const IDENTITY: [&str; 10] = [
    "generated",
    "increment",
    "minvalue",
    "maxvalue",
    "no",
    "start",
    "restart",
    "cache",
    "cycle",
    "sequence",
];

/// Reads the tokens of one statement (without its semicolon), if it is one of these. 42601 when it is and is wrong.
pub fn parse(tokens: &[TokenWithSpan]) -> Result<Option<Extra>> {
    let first = tokens.iter().find_map(|t| match &t.token {
        Token::Whitespace(_) => None,
        Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_lowercase()),
        _ => Some(String::new()),
    });
    const FIRST: [&str; 15] = [
        "grant", "revoke", "comment", "alter", "create", "drop", "import", "reassign", "refresh",
        "security", "vacuum", "analyze", "analyse", "reindex", "lock",
    ];
    let first = first.unwrap_or_default();
    if !FIRST.contains(&first.as_str()) && first != "cluster" {
        return Ok(None);
    }
    let mut w =
        Words(Parser::new(&PostgreSqlDialect {}).with_tokens_with_locations(tokens.to_vec()));
    let extra = match first.as_str() {
        "vacuum" | "analyze" | "analyse" | "reindex" | "cluster" => {
            Extra::Upkeep(w.upkeep(&first)?)
        }
        "lock" => Extra::Lock(w.lock()?),
        "grant" | "revoke" => {
            if let Some(tokens) = all_of_columns(tokens) {
                let mut p = Parser::new(&PostgreSqlDialect {}).with_tokens_with_locations(tokens);
                let statement = p
                    .parse_statement()
                    .map_err(|e| Error::new(SqlState::SYNTAX_ERROR, e.to_string()))?;
                Words(p).end()?;
                return Ok(Some(Extra::Statement(Box::new(statement), None)));
            }
            match w.role_grant()? {
                Some(g) => Extra::RoleGrant(g),
                None => match w.type_usage()? {
                    Some(e) => e,
                    None => return Ok(None),
                },
            }
        }
        "comment" => match w.comment_on_constraint()? {
            Some(e) => e,
            None => return Ok(None),
        },
        _ if w.at("drop index concurrently") => {
            let is_word = |t: &TokenWithSpan| matches!(&t.token, Token::Word(w) if w.value.eq_ignore_ascii_case("concurrently"));
            let at = tokens.iter().position(is_word);
            let mut tokens = tokens.to_vec();
            tokens.remove(at.expect("just seen"));
            let mut p = Parser::new(&PostgreSqlDialect {}).with_tokens_with_locations(tokens);
            let statement = p
                .parse_statement()
                .map_err(|e| Error::new(SqlState::SYNTAX_ERROR, e.to_string()))?;
            w = Words(p);
            Extra::DropIndexConcurrently(Box::new(statement))
        }
        _ => {
            if let Some(tokens) = reorder_identity(tokens) {
                let mut p = Parser::new(&PostgreSqlDialect {}).with_tokens_with_locations(tokens);
                let statement = p
                    .parse_statement()
                    .map_err(|e| Error::new(SqlState::SYNTAX_ERROR, e.to_string()))?;
                Words(p).end()?;
                return Ok(Some(Extra::Statement(Box::new(statement), None)));
            }
            if let Some(what) = REFUSED.iter().find(|r| w.at(r)) {
                return Ok(Some(Extra::Refused(what.to_uppercase())));
            }
            match w.definition()? {
                Some(e) => e,
                None => return Ok(None),
            }
        }
    };
    w.end()?;
    Ok(Some(extra))
}

/// `GRANT ALL (a, b) ON …` with the rights by name, each with the columns; none: the statement is another one.
fn all_of_columns(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let solid = |t: &&TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
    let tokens: Vec<&TokenWithSpan> = tokens.iter().filter(solid).collect();
    let is = |at: usize, word: &str| {
        let token = tokens.get(at).map(|t| &t.token);
        matches!(token, Some(Token::Word(w)) if w.value.eq_ignore_ascii_case(word))
    };
    if !is(1, "all") {
        return None;
    }
    let open = if is(2, "privileges") { 3 } else { 2 };
    if tokens.get(open)?.token != Token::LParen {
        return None;
    }
    let close = tokens.iter().position(|t| t.token == Token::RParen)?;
    let at = tokens[open].span;
    let mut out = vec![tokens[0].clone()];
    for (i, right) in ["SELECT", "INSERT", "UPDATE", "REFERENCES"]
        .iter()
        .enumerate()
    {
        if i > 0 {
            out.push(TokenWithSpan::new(Token::Comma, at));
        }
        out.push(TokenWithSpan::new(Token::make_keyword(right), at));
        out.extend(tokens[open..=close].iter().map(|t| (*t).clone()));
    }
    out.extend(tokens[close + 1..].iter().map(|t| (*t).clone()));
    Some(out)
}

pub(super) struct Words<'a>(pub(super) Parser<'a>);

impl Words<'_> {
    pub(super) fn peek(&self, n: usize) -> Option<String> {
        match self.0.peek_nth_token(n).token {
            Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_lowercase()),
            _ => None,
        }
    }

    /// Whether these words come next.
    pub(super) fn at(&self, words: &str) -> bool {
        let mut words = words.split(' ').enumerate();
        words.all(|(i, w)| self.peek(i).as_deref() == Some(w))
    }

    /// Takes these words if they come next.
    pub(super) fn eat(&mut self, words: &str) -> bool {
        let there = self.at(words);
        if there {
            words.split(' ').for_each(|_| {
                self.0.next_token();
            });
        }
        there
    }

    pub(super) fn wrong(&self) -> Error {
        let next = self.0.peek_token().token;
        Error::new(
            SqlState::SYNTAX_ERROR,
            match next {
                Token::EOF => "syntax error at end of input".to_string(),
                t => format!("syntax error at or near \"{t}\""),
            },
        )
    }

    pub(super) fn expect(&mut self, words: &str) -> Result<()> {
        if self.eat(words) {
            Ok(())
        } else {
            Err(self.wrong())
        }
    }

    fn end(&mut self) -> Result<()> {
        match self.0.peek_token().token {
            Token::EOF | Token::SemiColon => Ok(()),
            _ => Err(self.wrong()),
        }
    }

    pub(super) fn name(&mut self) -> Result<ObjectName> {
        self.0.parse_object_name(false).map_err(|_| self.wrong())
    }

    pub(super) fn ident(&mut self) -> Result<Ident> {
        self.0.parse_identifier().map_err(|_| self.wrong())
    }

    fn integer(&mut self) -> Result<i64> {
        let minus = self.0.consume_token(&Token::Minus);
        if !minus {
            let _ = self.0.consume_token(&Token::Plus);
        }
        match self.0.peek_token().token {
            Token::Number(n, _) => {
                let text = if minus { format!("-{n}") } else { n };
                let v = text.parse().map_err(|_| self.wrong())?;
                self.0.next_token();
                Ok(v)
            }
            _ => Err(self.wrong()),
        }
    }

    fn string(&mut self) -> Result<String> {
        match self.0.peek_token().token {
            Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => {
                self.0.next_token();
                Ok(s)
            }
            _ => Err(self.wrong()),
        }
    }

    /// Leaves comments on other objects to the parser.
    fn comment_on_constraint(&mut self) -> Result<Option<Extra>> {
        if !self.eat("comment on constraint") {
            return Ok(None);
        }
        let name = self.ident()?;
        self.expect("on")?;
        if self.eat("domain") {
            return Ok(Some(Extra::Refused(
                "COMMENT ON CONSTRAINT ON DOMAIN".into(),
            )));
        }
        let table = self.name()?;
        self.expect("is")?;
        let text = match self.eat("null") {
            true => None,
            false => Some(self.string()?),
        };
        Ok(Some(Extra::CommentOnConstraint { name, table, text }))
    }

    /// `GRANT USAGE ON TYPE a, b TO r`, and the same of REVOKE; other objects are left to the parser.
    fn type_usage(&mut self) -> Result<Option<Extra>> {
        let give = self.eat("grant");
        if !give {
            self.eat("revoke");
        }
        if self.at("grant option") {
            return Ok(None);
        }
        if self.eat("all") {
            self.eat("privileges");
        } else if !self.eat("usage") {
            return Ok(None);
        }
        if !self.eat("on type") && !self.eat("on domain") {
            return Ok(None);
        }
        let mut names = vec![self.name()?];
        while self.0.consume_token(&Token::Comma) {
            names.push(self.name()?);
        }
        self.expect(if give { "to" } else { "from" })?;
        let mut roles = vec![self.ident()?];
        while self.0.consume_token(&Token::Comma) {
            roles.push(self.ident()?);
        }
        if self.at("with grant option") {
            return Err(Error::unsupported("WITH GRANT OPTION"));
        }
        let _ = self.eat("restrict") || self.eat("cascade");
        Ok(Some(Extra::OfType(Box::new(TypeStatement::Usage {
            give,
            names,
            roles,
        }))))
    }

    /// CREATE USER, ALTER SEQUENCE, ALTER … RENAME, SET SCHEMA, DROP IDENTITY.
    fn definition(&mut self) -> Result<Option<Extra>> {
        if self.eat("create user") && !self.at("mapping") || self.eat("create group") {
            let name = self.ident()?;
            let mut options = self.role_options()?;
            options.login = options.login.or(Some(true));
            return Ok(Some(Extra::CreateUser { name, options }));
        }
        if self.at("mapping") {
            return Ok(Some(Extra::Refused("CREATE USER MAPPING".into())));
        }
        if self.eat("create sequence") {
            let if_not_exists = self.eat("if not exists");
            let name = self.name()?;
            let (options, owned_by) = self.sequence_options()?;
            return Ok(Some(Extra::CreateSequence {
                name,
                if_not_exists,
                options,
                owned_by,
            }));
        }
        if self.at("alter table") {
            return self.alter_table();
        }
        if self.eat("alter sequence") {
            let if_exists = self.eat("if exists");
            let name = self.name()?;
            if let Some(e) = self.rename_or_owner(&name, if_exists, "ALTER SEQUENCE")? {
                return Ok(Some(e));
            }
            let (options, owned_by) = self.sequence_options()?;
            return Ok(Some(Extra::AlterSequence {
                name,
                if_exists,
                options,
                owned_by,
            }));
        }
        if let Some(g) = self.alter_group()? {
            return Ok(Some(Extra::RoleGrant(g)));
        }
        if self.at("alter default privileges") {
            return Ok(Some(Extra::DefaultPrivileges(self.default_privileges()?)));
        }
        if let Some(s) = self.stored_setting()? {
            return Ok(Some(Extra::StoredSetting(s)));
        }
        if self.at("alter database") {
            return Ok(Some(self.refuse_rest("ALTER DATABASE")));
        }
        if let Some(e) = self.domain()? {
            return Ok(Some(e));
        }
        if self.eat("alter type") {
            let name = self.name()?;
            if let Some(e) = self.owner_or_schema(&name)? {
                return Ok(Some(e));
            }
            if let Some(changes) = self.attribute_changes()? {
                let statement = TypeStatement::Attributes { name, changes };
                return Ok(Some(Extra::OfType(Box::new(statement))));
            }
            if self.at("rename to") || self.at("rename value") || self.at("add value") {
                return Ok(None);
            }
            return Ok(Some(self.refuse_rest("ALTER TYPE")));
        }
        for (words, tag) in [("alter view", "ALTER VIEW"), ("alter index", "ALTER INDEX")] {
            if !self.eat(words) {
                continue;
            }
            let if_exists = self.eat("if exists");
            let name = self.name()?;
            if let Some(e) = self.rename_or_owner(&name, if_exists, tag)? {
                return Ok(Some(e));
            }
            if tag == "ALTER INDEX" && (self.at("set (") || self.at("set") || self.at("reset")) {
                return Ok(Some(Extra::Refused("ALTER INDEX SET".into())));
            }
            if tag == "ALTER VIEW"
                && let Some(options) = self.view_options()?
            {
                return Ok(Some(Extra::ViewOptions {
                    name,
                    if_exists,
                    options,
                }));
            }
            return Ok(Some(self.refuse_rest(tag)));
        }
        Ok(None)
    }

    /// OWNER TO or SET SCHEMA of a type or domain, if it comes next.
    pub(super) fn owner_or_schema(&mut self, name: &ObjectName) -> Result<Option<Extra>> {
        let name = name.clone();
        let statement = if self.eat("owner to") {
            let owner = self.ident()?;
            TypeStatement::Owner { name, owner }
        } else if self.eat("set schema") {
            let schema = self.ident()?;
            TypeStatement::Schema { name, schema }
        } else {
            return Ok(None);
        };
        Ok(Some(Extra::OfType(Box::new(statement))))
    }

    /// `SET (name = value, …)` or `RESET (name, …)`, if it comes next.
    fn view_options(&mut self) -> Result<Option<Vec<(String, Option<String>)>>> {
        let set = self.eat("set");
        if !set && !self.eat("reset") {
            return Ok(None);
        }
        if !self.0.consume_token(&Token::LParen) {
            return Err(self.wrong());
        }
        let mut options = vec![];
        loop {
            let name = self.ident()?.value.to_lowercase();
            let value = match self.0.consume_token(&Token::Eq) {
                true => Some(self.0.next_token().token.to_string()),
                false => set.then(|| "true".to_owned()),
            };
            options.push((name, value));
            if !self.0.consume_token(&Token::Comma) {
                break;
            }
        }
        match self.0.consume_token(&Token::RParen) {
            true => Ok(Some(options)),
            false => Err(self.wrong()),
        }
    }

    /// Takes all that is left of a statement that is refused.
    fn refuse_rest(&mut self, what: &str) -> Extra {
        while self.0.next_token().token != Token::EOF {}
        Extra::Refused(format!("this form of {what}"))
    }

    /// ALTER TABLE: only what the parser does not read.
    fn alter_table(&mut self) -> Result<Option<Extra>> {
        let mut n = 2;
        let mut if_exists = false;
        if self.peek(n).as_deref() == Some("if") {
            (n, if_exists) = (n + 2, true);
        }
        if self.peek(n).as_deref() == Some("only") {
            n += 1;
        }
        let start = n;
        // The name: words with dots between.
        n += 1;
        while self.0.peek_nth_token(n).token == Token::Period {
            n += 2;
        }
        let word = |i: usize| self.peek(n + i).unwrap_or_default();
        let set_schema = word(0) == "set" && word(1) == "schema";
        let column = word(0) == "alter";
        let skip = usize::from(column && word(1) == "column");
        let drops_identity = column && word(skip + 2) == "drop" && word(skip + 3) == "identity";
        let alters_identity = column
            && match word(skip + 2).as_str() {
                "restart" => true,
                "set" => IDENTITY.contains(&word(skip + 3).as_str()),
                _ => false,
            };
        let tuning = column
            && word(skip + 2) == "set"
            && matches!(
                word(skip + 3).as_str(),
                "statistics" | "storage" | "compression"
            );
        let parenthesis = |i: usize| self.0.peek_nth_token(n + i).token == Token::LParen;
        let options =
            column && matches!(word(skip + 2).as_str(), "set" | "reset") && parenthesis(skip + 3);
        let cluster = word(0) == "cluster" || word(0) == "set" && word(1) == "without";
        // Storage parameters are not kept.
        let reset = word(0) == "reset" && parenthesis(1);
        let unkept = tuning || cluster || reset;
        if !(set_schema || drops_identity || alters_identity || options || unkept) {
            return Ok(None);
        }
        for _ in 0..start {
            self.0.next_token();
        }
        let name = self.name()?;
        if set_schema {
            self.expect("set schema")?;
            return Ok(Some(Extra::SetSchema {
                tag: "ALTER TABLE",
                name,
                if_exists,
                schema: self.ident()?,
            }));
        }
        if drops_identity {
            self.expect("alter")?;
            self.eat("column");
            let column = self.ident()?;
            self.expect("drop identity")?;
            return Ok(Some(Extra::DropIdentity {
                table: name,
                column,
                if_exists: self.eat("if exists"),
            }));
        }
        if alters_identity {
            return self.alter_identity(name, if_exists).map(Some);
        }
        if options {
            return self.column_options(name, if_exists).map(Some);
        }
        // How a table is stored or sampled, and the order of CLUSTER, mean nothing here.
        while self.0.next_token().token != Token::EOF {}
        Ok(Some(Extra::Upkeep(Upkeep::alter_table(name))))
    }

    /// `ALTER c { SET GENERATED … | SET option | RESTART … } …`.
    fn alter_identity(&mut self, table: ObjectName, if_exists: bool) -> Result<Extra> {
        self.expect("alter")?;
        self.eat("column");
        let column = self.ident()?;
        let (mut always, mut options) = (None, Options::default());
        loop {
            if self.eat("set generated") {
                let by_default = self.eat("by default");
                if !by_default {
                    self.expect("always")?;
                }
                once(&mut always, !by_default)?;
            } else {
                if !self.at("restart") {
                    self.expect("set")?;
                }
                if self.at("as") || !self.sequence_option(&mut options)? {
                    return Err(self.wrong());
                }
            }
            if matches!(self.0.peek_token().token, Token::EOF | Token::SemiColon) {
                break;
            }
        }
        Ok(Extra::AlterIdentity {
            table,
            column,
            if_exists,
            always,
            options: Box::new(options),
        })
    }

    /// `ALTER c SET (name [= value], …)` and `ALTER c RESET (name, …)`.
    fn column_options(&mut self, table: ObjectName, if_exists: bool) -> Result<Extra> {
        self.expect("alter")?;
        self.eat("column");
        let column = self.ident()?;
        let sets = self.eat("set");
        if !sets {
            self.expect("reset")?;
        }
        let (mut set, mut reset) = (vec![], vec![]);
        self.0
            .expect_token(&Token::LParen)
            .map_err(|_| self.wrong())?;
        loop {
            let name = self.ident()?.value.to_lowercase();
            if !sets {
                reset.push(name);
            } else if self.0.consume_token(&Token::Eq) {
                set.push((name, self.0.next_token().token.to_string()));
            } else {
                set.push((name, "true".into()));
            }
            if !self.0.consume_token(&Token::Comma) {
                break;
            }
        }
        self.0
            .expect_token(&Token::RParen)
            .map_err(|_| self.wrong())?;
        Ok(Extra::ColumnOptions {
            table,
            column,
            if_exists,
            set,
            reset,
        })
    }

    fn rename_or_owner(
        &mut self,
        name: &ObjectName,
        if_exists: bool,
        tag: &'static str,
    ) -> Result<Option<Extra>> {
        let operation = if self.eat("rename to") {
            AlterTableOperation::RenameTable {
                table_name: RenameTableNameKind::To(ObjectName::from(vec![self.ident()?])),
            }
        } else if self.eat("owner to") {
            AlterTableOperation::OwnerTo {
                new_owner: self.0.parse_owner().map_err(|_| self.wrong())?,
            }
        } else if self.eat("set schema") {
            return Ok(Some(Extra::SetSchema {
                tag,
                name: name.clone(),
                if_exists,
                schema: self.ident()?,
            }));
        } else {
            return Ok(None);
        };
        let alter = AlterTable {
            name: name.clone(),
            if_exists,
            only: false,
            operations: vec![operation],
            location: None,
            on_cluster: None,
            table_type: None,
            end_token: AttachedToken::empty(),
        };
        Ok(Some(Extra::Statement(
            Box::new(Statement::AlterTable(alter)),
            Some(tag),
        )))
    }

    fn sequence_options(&mut self) -> Result<(Options, Option<ObjectName>)> {
        let (mut o, mut owned_by) = (Options::default(), None);
        while self.0.peek_token().token != Token::EOF {
            if self.eat("owned by") {
                once(&mut owned_by, self.name()?)?;
            } else if !self.sequence_option(&mut o)? {
                return Err(self.wrong());
            }
        }
        Ok((o, owned_by))
    }

    /// One option, if one comes next.
    fn sequence_option(&mut self, o: &mut Options) -> Result<bool> {
        if self.eat("as") {
            let dt = self.0.parse_data_type().map_err(|_| self.wrong())?;
            once(&mut o.ty, super::column_type(&dt)?.ty)?;
        } else if self.eat("increment") {
            self.eat("by");
            once(&mut o.increment, self.integer()?)?;
        } else if self.eat("no minvalue") {
            once(&mut o.min, None)?;
        } else if self.eat("minvalue") {
            once(&mut o.min, Some(self.integer()?))?;
        } else if self.eat("no maxvalue") {
            once(&mut o.max, None)?;
        } else if self.eat("maxvalue") {
            once(&mut o.max, Some(self.integer()?))?;
        } else if self.eat("start") {
            self.eat("with");
            once(&mut o.start, self.integer()?)?;
        } else if self.eat("restart") {
            let with = self.eat("with");
            let number = matches!(
                self.0.peek_token().token,
                Token::Number(..) | Token::Minus | Token::Plus
            );
            let value = (with || number).then(|| self.integer()).transpose()?;
            once(&mut o.restart, value)?;
        } else if self.eat("cache") {
            once(&mut o.cache, self.integer()?)?;
        } else if self.eat("no cycle") {
            once(&mut o.cycle, false)?;
        } else if self.eat("cycle") {
            once(&mut o.cycle, true)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn role_options(&mut self) -> Result<RoleOptions> {
        let mut o = RoleOptions::default();
        self.eat("with");
        loop {
            let flag = |on: bool| Some(on);
            match self.peek(0).as_deref() {
                None => break,
                Some("login") => o.login = flag(true),
                Some("nologin") => o.login = flag(false),
                Some("superuser") => o.superuser = flag(true),
                Some("nosuperuser") => o.superuser = flag(false),
                Some("createdb") => o.createdb = flag(true),
                Some("nocreatedb") => o.createdb = flag(false),
                Some("createrole") => o.createrole = flag(true),
                Some("nocreaterole") => o.createrole = flag(false),
                Some("replication") => o.replication = flag(true),
                Some("noreplication") => o.replication = flag(false),
                Some("inherit") => o.inherit = flag(true),
                Some("noinherit") => o.inherit = flag(false),
                Some("bypassrls" | "nobypassrls") => {}
                Some("encrypted") if self.peek(1).as_deref() == Some("password") => {}
                Some("password") => {
                    self.0.next_token();
                    o.password = Some(match self.eat("null") {
                        true => None,
                        false => Some(self.string()?),
                    });
                    continue;
                }
                Some("connection") => {
                    self.expect("connection limit")?;
                    o.connection_limit = Some(self.integer()?);
                    continue;
                }
                Some("valid") => {
                    self.expect("valid until")?;
                    o.valid_until = Some(self.string()?);
                    continue;
                }
                Some("in" | "role" | "user" | "admin") => {
                    self.new_memberships(&mut o.memberships)?;
                    continue;
                }
                Some(_) => return Err(self.wrong()),
            }
            self.0.next_token();
        }
        Ok(o)
    }
}
