//! A database in memory for this crate's tests: a store, transactions, DDL and plans, without log, node or session.

use crate::bind::PrepareContext;
use crate::catalog::NoFacts;
use crate::ddl::{self, DdlContext};
use crate::exec::{ExecContext, RowBatch};
use crate::functions::{NoSession, SessionContext};
use crate::plan::Prepared;
use crate::prepare::prepare;
use crate::rules::{Analysis, Compiler};
use crate::types::{OutputSettings, text};
use base::position::Watermarks;
use base::schema::Schema;
use base::{Oid, Position, Result, SqlState, Type, Value};
use parking_lot::Mutex;
use sqlparser::ast::{Ident, ObjectName, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Tokenizer;
use std::collections::HashMap;
use std::sync::Arc;
use txn::{
    Catalog, CommitOrder, Durability, Interrupt, Isolation, Txn, TxnManager, TxnOptions,
    replay_changes,
};

struct Order {
    next: Mutex<u64>,
    marks: Arc<Watermarks>,
}

impl CommitOrder for Order {
    fn wait_for_room(&self, _: &dyn Fn() -> Result<()>) -> Result<()> {
        Ok(())
    }

    fn begin(&self) -> Result<(Position, u64)> {
        let mut n = self.next.lock();
        *n += 1;
        Ok((Position::new(1, *n as u32), *n))
    }

    fn ready(&self, ticket: u64, _: Vec<u8>, _: Vec<u8>) {
        self.abort(ticket);
    }

    fn abort(&self, ticket: u64) {
        let p = Position::new(1, ticket as u32);
        self.marks.installed.raise(p);
        self.marks.decide(p);
    }
}

/// A session that has sequences.
struct Sequences(Mutex<HashMap<Oid, i64>>);

impl SessionContext for Sequences {
    fn statement_timestamp(&self) -> i64 {
        0
    }
    fn clock_timestamp(&self) -> i64 {
        0
    }
    fn current_user(&self) -> String {
        "canon".into()
    }
    fn session_user(&self) -> String {
        "canon".into()
    }
    fn database(&self) -> String {
        "canon".into()
    }
    fn schemas(&self, implicit: bool) -> Vec<String> {
        NoSession.schemas(implicit)
    }
    fn backend_pid(&self) -> i32 {
        1
    }
    fn setting(&self, _: &str) -> Option<String> {
        None
    }
    fn set_setting(&self, _: &str, value: &str, _: bool) -> Result<String> {
        Ok(value.into())
    }
    fn random(&self) -> f64 {
        0.5
    }
    fn set_seed(&self, _: f64) {}
    fn random_bytes(&self, out: &mut [u8]) {
        out.fill(7);
    }
    fn nextval(&self, sequence: Oid) -> Result<i64> {
        let mut m = self.0.lock();
        let n = m.entry(sequence).or_insert(0);
        *n += 1;
        Ok(*n)
    }
    fn currval(&self, sequence: Oid) -> Result<i64> {
        Ok(self.0.lock().get(&sequence).copied().unwrap_or(0))
    }
    fn lastval(&self) -> Result<i64> {
        Ok(0)
    }
    fn setval(&self, sequence: Oid, value: i64, _: bool) -> Result<i64> {
        self.0.lock().insert(sequence, value);
        Ok(value)
    }
    fn sleep(&self, _: f64) -> Result<()> {
        Ok(())
    }
    fn transaction_id(&self, _: bool) -> Option<i64> {
        None
    }
    fn server_start(&self) -> i64 {
        0
    }
    fn catalog_function(&self, name: &'static str, a: &[Type], v: &[Value]) -> Result<Value> {
        NoSession.catalog_function(name, a, v)
    }
}

pub struct TestDb {
    manager: Arc<TxnManager>,
    order: Order,
    session: Sequences,
    settings: OutputSettings,
    path: Vec<String>,
}

/// What a statement gave: rows as text, or how many it touched.
#[derive(Debug)]
pub struct Answer {
    pub rows: Vec<Vec<String>>,
    pub affected: u64,
}

impl TestDb {
    pub fn new() -> TestDb {
        let store = Arc::new(store::Store::default());
        let empty = Catalog {
            schema: Arc::new(Schema::default()),
            tables: Default::default(),
        };
        let changes = Schema::bootstrap("canon").dump();
        let catalog = replay_changes(&store, &empty, &changes).expect("bootstrap");
        let marks = Arc::new(Watermarks::new(Position::new(1, 0)));
        let manager = TxnManager::new(store, marks.clone(), catalog);
        manager.set_compiler(Arc::new(Compiler));
        TestDb {
            manager,
            order: Order {
                next: Mutex::new(0),
                marks,
            },
            session: Sequences(Mutex::default()),
            settings: OutputSettings::default(),
            path: vec!["public".into()],
        }
    }

    pub fn begin(&self) -> Txn {
        let options = TxnOptions {
            isolation: Isolation::Serializable,
            read_only: false,
            deferrable: false,
            locking: true,
            contended: false,
            durability: Durability::Off,
            interrupt: Arc::new(Interrupt::default()),
        };
        self.manager.begin(options, false)
    }

    pub fn commit(&self, t: Txn) -> Result<()> {
        t.commit(&self.order).map(|_| ())
    }

    /// Gives every value of the split columns of a table so many further records, as a worker does.
    pub fn spread(&self, table: &str, records: u16) {
        let catalog = self.manager.catalog();
        let named = catalog.schema.tables().find(|t| t.def.name == table);
        let table = catalog.table(named.expect("a table").def.id).expect("here");
        let mut keys: Vec<Box<[u8]>> = vec![];
        table
            .storage
            .for_each(&store::pin(), |r| keys.push(r.key().into()));
        for (column, c) in table.table.def.columns.iter().enumerate() {
            for key in keys.iter().filter(|_| c.split.is_some()) {
                let mut t = self.begin();
                t.begin_statement().unwrap();
                t.spread_value(table, key, column, records).unwrap();
                self.commit(t).unwrap();
            }
        }
    }

    /// Moves a part of every value that is split in the mode `rows` from this record to the next one.
    pub fn balance(&self, table: &str, from: u16) {
        for v in self.manager.split_values(false) {
            let catalog = self.manager.catalog();
            let t = catalog.table(v.table).expect("here");
            if t.name() != table {
                continue;
            }
            let mut txn = self.begin();
            txn.begin_statement().unwrap();
            let moves = [txn::Move {
                from,
                to: from + 1,
                amount: 5,
            }];
            let column = usize::from(v.column);
            if txn.balance_value(t, &v.key, column, &moves).unwrap() {
                self.commit(txn).unwrap();
            }
        }
    }

    /// How many values have further records.
    pub fn spread_values(&self) -> usize {
        let values = self.manager.split_values(false);
        values.iter().filter(|v| v.records > 0).count()
    }

    /// Commits that a coarser look would have refused.
    pub fn spared(&self, by: txn::Spared) -> u64 {
        self.manager.stats.spared(by)
    }

    pub fn prepare_in(
        &self,
        txn: &Txn,
        stmt: &Statement,
        sql: &str,
        types: &[Option<Type>],
    ) -> Result<Arc<Prepared>> {
        let catalog = txn.catalog();
        let path: Vec<Oid> = crate::catalog::namespaces(&catalog.schema, &self.path).collect();
        prepare(
            stmt,
            types,
            &PrepareContext {
                catalog: &catalog,
                search_path: &path,
                role: base::schema::BOOTSTRAP_ROLE,
                settings: &self.settings,
                session: &self.session,
                rows: Some(&|t| txn.estimated_rows(t)),
                source: sql,
            },
        )
    }

    /// Prepares one statement against the newest schema.
    pub fn prepare(&self, sql: &str, types: &[Option<Type>]) -> Result<Arc<Prepared>> {
        let mut txn = self.begin();
        txn.begin_statement()?;
        self.prepare_in(&txn, &parse(sql)?[0], sql, types)
    }

    /// Runs statements, each in its own transaction; the answer of the last.
    pub fn run(&self, sql: &str) -> Result<Answer> {
        self.run_with(sql, &[])
    }

    pub fn run_with(&self, sql: &str, params: &[Value]) -> Result<Answer> {
        let mut last = Answer {
            rows: vec![],
            affected: 0,
        };
        for stmt in parse(sql)? {
            let mut txn = self.begin();
            last = self
                .run_in(&mut txn, &stmt, sql, params)
                .map_err(txn::Stop::only_error)?;
            self.commit(txn)?;
        }
        Ok(last)
    }

    pub fn run_in(
        &self,
        txn: &mut Txn,
        stmt: &Statement,
        sql: &str,
        params: &[Value],
    ) -> Result<Answer, txn::Stop> {
        txn.begin_statement()?;
        let r = self.statement(txn, stmt, sql, params);
        match r {
            Ok(a) => txn.end_statement().map(|()| a),
            Err(e) => {
                txn.rollback_statement();
                Err(e)
            }
        }
    }

    /// Changes the schema as the bootstrap role.
    fn defines<T>(&self, txn: &mut Txn, change: impl FnOnce(&mut Txn, &DdlContext<'_>) -> T) -> T {
        let analyzer = Analysis {
            role: base::schema::BOOTSTRAP_ROLE,
            settings: &self.settings,
            session: &self.session,
        };
        let cx = DdlContext {
            role: base::schema::BOOTSTRAP_ROLE,
            session_user: base::schema::BOOTSTRAP_ROLE,
            database: "canon",
            search_path: &self.path,
            analyzer: &analyzer,
            settings: &self.settings,
            random_bytes: &|b| b.fill(1),
            check_setting: &|_, _| Ok(()),
            in_transaction_block: false,
        };
        change(txn, &cx)
    }

    /// The mode in which a column is split.
    pub fn split_in(&self, table: &str, column: &str, mode: &str) {
        let set = ddl::Extra::ColumnOptions {
            table: ObjectName::from(vec![Ident::new(table)]),
            column: Ident::new(column),
            if_exists: false,
            set: vec![("split_mode".into(), mode.into())],
            reset: vec![],
        };
        let mut txn = self.begin();
        txn.begin_statement().unwrap();
        let done = self.defines(&mut txn, |txn, cx| ddl::execute_extra(&set, txn, cx));
        done.map_err(txn::Stop::only_error).unwrap();
        txn.end_statement().unwrap();
        self.commit(txn).unwrap();
    }

    fn statement(
        &self,
        txn: &mut Txn,
        stmt: &Statement,
        sql: &str,
        params: &[Value],
    ) -> Result<Answer, txn::Stop> {
        if ddl::is_ddl(stmt) {
            self.defines(txn, |txn, cx| ddl::execute(stmt, txn, cx))?;
            return Ok(Answer {
                rows: vec![],
                affected: 0,
            });
        }
        let p = self.prepare_in(txn, stmt, sql, &[])?;
        self.execute(txn, &p, params)
    }

    pub fn execute(
        &self,
        txn: &mut Txn,
        p: &Arc<Prepared>,
        params: &[Value],
    ) -> Result<Answer, txn::Stop> {
        self.execute_by(txn, p, params, 3, false)
    }

    /// The same with all rows asked for at once.
    pub fn execute_all(
        &self,
        txn: &mut Txn,
        p: &Arc<Prepared>,
        params: &[Value],
    ) -> Result<Answer, txn::Stop> {
        self.execute_by(txn, p, params, 0, false)
    }

    /// The same without shortcuts.
    pub fn execute_slowly(
        &self,
        txn: &mut Txn,
        p: &Arc<Prepared>,
        params: &[Value],
    ) -> Result<Answer, txn::Stop> {
        self.execute_by(txn, p, params, 0, true)
    }

    fn execute_by(
        &self,
        txn: &mut Txn,
        p: &Arc<Prepared>,
        params: &[Value],
        batch_rows: usize,
        slowly: bool,
    ) -> Result<Answer, txn::Stop> {
        let cx = ExecContext {
            settings: &self.settings,
            session: &self.session,
            facts: &NoFacts,
        };
        let mut e = p.start(params.to_vec());
        e.no_shortcut = slowly;
        let mut batch = RowBatch::new();
        let mut rows = vec![];
        loop {
            let more = e.next_batch(txn, &cx, batch_rows, &mut batch)?;
            for r in batch.rows() {
                let show = |(v, c): (&Value, &crate::plan::OutColumn)| {
                    if v.is_null() {
                        return "NULL".to_owned();
                    }
                    let mut s = String::new();
                    text::output(v, c.ty.ty, &self.settings, &mut s);
                    s
                };
                rows.push(r.iter().zip(&p.columns).map(show).collect());
            }
            if !more {
                break;
            }
        }
        Ok(Answer {
            rows,
            affected: e.rows_affected(),
        })
    }

    /// Rows of a query as lines of columns joined by `|`.
    pub fn rows(&self, sql: &str) -> Vec<String> {
        match self.run(sql) {
            Ok(a) => a.rows.iter().map(|r| r.join("|")).collect(),
            Err(e) => panic!("{sql}: {e}"),
        }
    }

    /// SQLSTATE of a statement that must fail.
    pub fn fails(&self, sql: &str) -> SqlState {
        match self.run(sql) {
            Ok(a) => panic!("{sql} gave {a:?}"),
            Err(e) => e.code(),
        }
    }
}

pub fn parse(sql: &str) -> Result<Vec<Statement>> {
    let syntax = |e: String| base::Error::new(SqlState::SYNTAX_ERROR, e);
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql)
        .tokenize_with_location()
        .map_err(|e| syntax(e.to_string()))?;
    Parser::new(&PostgreSqlDialect {})
        .with_tokens_with_locations(crate::bind::adapt(&tokens))
        .parse_statements()
        .map_err(|e| syntax(e.to_string()))
}
