//! tokio-postgres: binary formats, portals with row limits, pipelining, COPY, cancel, error fields.

mod common;

use bytes::BytesMut;
use common::{Server, sqlstate};
use futures::StreamExt;
use std::error::Error;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutStream};
use tokio_postgres::error::ErrorPosition;
use tokio_postgres::types::{FromSql, IsNull, Kind, ToSql, Type};
use tokio_postgres::{IsolationLevel, NoTls, SimpleQueryMessage};

/// A driver finds what an enum is in the catalogs, and sends and reads its values in binary form, also in COPY.
#[tokio::test(flavor = "multi_thread")]
async fn enums_travel_both_ways_in_binary() {
    let server = Server::start().await;
    let client = server.connect().await;
    let schema = "CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TABLE t (m mood, ms mood[])";
    client.batch_execute(schema).await.unwrap();
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await;
    let insert = insert.unwrap();
    let kinds: Vec<_> = insert.params().iter().map(Type::kind).collect();
    let labels = vec!["sad".to_owned(), "happy".to_owned()];
    assert_eq!(*kinds[0], Kind::Enum(labels));
    assert_eq!(*kinds[1], Kind::Array(insert.params()[0].clone()));
    let (m, ms) = (
        Label("happy".into()),
        vec![Label("sad".into()), Label("happy".into())],
    );
    let done = client.execute(&insert, &[&m, &ms]).await;
    assert_eq!(done.unwrap(), 1);
    let wrong = client
        .execute(&insert, &[&Label("angry".into()), &ms])
        .await;
    assert_eq!(sqlstate(&wrong.unwrap_err()), "22P02");
    let select = "SELECT m, ms FROM t WHERE m = $1";
    let got = client.query_one(select, &[&m]).await.unwrap();
    assert_eq!(got.get::<_, Label>(0), m);
    assert_eq!(got.get::<_, Vec<Label>>(1), ms);
    let types: Vec<Type> = insert.params().to_vec();
    let sink = client.copy_in("COPY t FROM STDIN (FORMAT binary)").await;
    let mut writer = pin!(BinaryCopyInWriter::new(sink.unwrap(), &types));
    writer.as_mut().write(&[&m, &ms]).await.unwrap();
    assert_eq!(writer.finish().await.unwrap(), 1);
    let out = client.copy_out("COPY (SELECT m FROM t) TO STDOUT (FORMAT binary)");
    let rows = pin!(BinaryCopyOutStream::new(out.await.unwrap(), &types[..1]));
    let rows: Vec<_> = rows.map(|r| r.unwrap().get::<Label>(0)).collect().await;
    assert_eq!(rows, [m.clone(), m]);
}

/// The label of an enum.
#[derive(Clone, Debug, PartialEq)]
struct Label(String);

impl ToSql for Label {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Enum(_))
    }

    tokio_postgres::types::to_sql_checked!();
}

impl<'a> FromSql<'a> for Label {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Label, Box<dyn Error + Sync + Send>> {
        Ok(Label(std::str::from_utf8(raw)?.into()))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Enum(_))
    }
}

/// Values of types that this driver has no code for, byte by byte as PostgreSQL sends and takes them.
#[tokio::test(flavor = "multi_thread")]
async fn bit_strings_and_addresses_travel_as_bytes() {
    let server = Server::start().await;
    let client = server.connect().await;
    let select = "SELECT $1::bit(5), $2::varbit, $3::inet, $4::cidr, $5::macaddr, $6::macaddr8, $7::timetz, \
        $1::bit(5)::text || ' ' || $2::varbit::text || ' ' || $3::inet || ' ' || $4::cidr || ' ' || $5::macaddr || ' ' || $6::macaddr8 || ' ' || $7::timetz";
    let values = [
        Raw(vec![0, 0, 0, 5, 0xb0]),
        Raw(vec![0, 0, 0, 0]),
        Raw(vec![2, 8, 0, 4, 10, 1, 2, 3]),
        Raw([&[3, 32, 1, 16, 0x20, 0x01, 0x0d, 0xb8][..], &[0; 12]].concat()),
        Raw(vec![8, 0, 0x2b, 1, 2, 3]),
        Raw(vec![8, 0, 0x2b, 0xff, 0xfe, 1, 2, 3]),
        Raw([
            &3_600_000_000i64.to_be_bytes()[..],
            &(-7200i32).to_be_bytes(),
        ]
        .concat()),
    ];
    let values = values.each_ref().map(|v| v as &(dyn ToSql + Sync));
    let got = client.query_one(select, &values).await.unwrap();
    let text =
        "10110  10.1.2.3/8 2001:db8::/32 08:00:2b:01:02:03 08:00:2b:ff:fe:01:02:03 01:00:00+02";
    assert_eq!(got.get::<_, &str>(7), text);
    for (i, v) in values.iter().enumerate() {
        let mut sent = BytesMut::new();
        v.to_sql_checked(got.columns()[i].type_(), &mut sent)
            .unwrap();
        assert_eq!(got.get::<_, Raw>(i).0, sent[..], "{i}");
    }
    let host_bits = Raw(vec![2, 8, 1, 4, 10, 1, 2, 3]);
    let wrong = client.query_one("SELECT $1::cidr", &[&host_bits]).await;
    assert_eq!(sqlstate(&wrong.unwrap_err()), "22P03");
}

/// A driver finds the attributes of a composite type in the catalogs, and its values travel as records do.
#[tokio::test(flavor = "multi_thread")]
async fn composite_values_travel_both_ways_in_binary() {
    let server = Server::start().await;
    let client = server.connect().await;
    let schema = "CREATE TYPE pair AS (n int, s text); CREATE TABLE t (p pair, ps pair[])";
    client.batch_execute(schema).await.unwrap();
    let insert = client
        .prepare("INSERT INTO t VALUES ($1, $2)")
        .await
        .unwrap();
    let Kind::Composite(fields) = insert.params()[0].kind() else {
        panic!("{:?}", insert.params());
    };
    let fields: Vec<_> = fields
        .iter()
        .map(|f| (f.name(), f.type_().clone()))
        .collect();
    assert_eq!(fields, [("n", Type::INT4), ("s", Type::TEXT)]);
    assert_eq!(
        *insert.params()[1].kind(),
        Kind::Array(insert.params()[0].clone())
    );
    let field = |oid: u32, v: Option<&[u8]>| {
        let len = v.map_or(-1, |v| v.len() as i32);
        let head = [oid.to_be_bytes(), len.to_be_bytes()].concat();
        [&head[..], v.unwrap_or_default()].concat()
    };
    let number = 7i32.to_be_bytes();
    let row = [
        &2i32.to_be_bytes()[..],
        &field(23, Some(&number)),
        &field(25, None),
    ]
    .concat();
    let (p, ps) = (Raw(row.clone()), vec![Raw(row.clone())]);
    assert_eq!(client.execute(&insert, &[&p, &ps]).await.unwrap(), 1);
    let got = client
        .query_one("SELECT p, ps, p::text FROM t WHERE p = $1", &[&p])
        .await
        .unwrap();
    assert_eq!(got.get::<_, Raw>(0).0, row);
    assert_eq!(got.get::<_, Vec<Raw>>(1)[0].0, row);
    assert_eq!(got.get::<_, &str>(2), "(7,)");
    let short = Raw([&1i32.to_be_bytes()[..], &field(23, Some(&number))].concat());
    let wrong = client.execute(&insert, &[&short, &ps]).await;
    assert_eq!(sqlstate(&wrong.unwrap_err()), "42804");
}

/// A value's bytes on the wire.
#[derive(Debug)]
struct Raw(Vec<u8>);

impl ToSql for Raw {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Raw, Box<dyn Error + Sync + Send>> {
        Ok(Raw(raw.into()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_travel_both_ways_in_binary() {
    let server = Server::start().await;
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE t (id int PRIMARY KEY, i2 int2, i8 int8, f4 float4, f8 float8, b bool, s text, \
             v varchar(20), raw bytea, tz timestamptz, ints int[], words text[])",
        )
        .await
        .unwrap();
    let insert = "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let at = UNIX_EPOCH + Duration::from_micros(1_582_971_072_345_678);
    let words = vec![Some("a"), None, Some("quo\"te"), Some("")];
    let row: [&(dyn ToSql + Sync); 12] = [
        &1i32,
        &-7i16,
        &i64::MIN,
        &1.5f32,
        &f64::MAX,
        &true,
        &"grün",
        &"var",
        &&b"\x00\xff"[..],
        &at,
        &vec![1i32, -2],
        &words,
    ];
    assert_eq!(client.execute(insert, &row).await.unwrap(), 1);
    let got = client
        .query_one("SELECT * FROM t WHERE id = $1", &[&1i32])
        .await
        .unwrap();
    assert_eq!(got.get::<_, i16>(1), -7);
    assert_eq!(got.get::<_, i64>(2), i64::MIN);
    assert_eq!(got.get::<_, f32>(3), 1.5);
    assert_eq!(got.get::<_, f64>(4), f64::MAX);
    assert!(got.get::<_, bool>(5));
    assert_eq!(got.get::<_, &str>(6), "grün");
    assert_eq!(got.get::<_, &str>(7), "var");
    assert_eq!(got.get::<_, &[u8]>(8), b"\x00\xff");
    assert_eq!(got.get::<_, SystemTime>(9), at);
    assert_eq!(got.get::<_, Vec<i32>>(10), [1, -2]);
    assert_eq!(got.get::<_, Vec<Option<&str>>>(11), words);
    let types: Vec<&Type> = got.columns().iter().map(|c| c.type_()).collect();
    assert_eq!(
        types[..4],
        [&Type::INT4, &Type::INT2, &Type::INT8, &Type::FLOAT4]
    );
    assert_eq!(types[7], &Type::VARCHAR);

    let none: Option<i32> = None;
    client
        .execute(
            insert,
            &[
                &2i32,
                &None::<i16>,
                &None::<i64>,
                &None::<f32>,
                &None::<f64>,
                &None::<bool>,
                &None::<&str>,
                &None::<&str>,
                &None::<&[u8]>,
                &None::<SystemTime>,
                &None::<Vec<i32>>,
                &None::<Vec<&str>>,
            ],
        )
        .await
        .unwrap();
    let got = client
        .query_one("SELECT i2, words FROM t WHERE i8 IS NULL", &[])
        .await
        .unwrap();
    assert_eq!(got.get::<_, Option<i16>>(0), None);
    assert_eq!(got.get::<_, Option<Vec<String>>>(1), None);
    let got = client
        .query_one("SELECT $1::int IS NULL, $2 || 'x'", &[&none, &"a"])
        .await
        .unwrap();
    assert!(got.get::<_, bool>(0));
    assert_eq!(got.get::<_, &str>(1), "ax");
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_typed_by_where_they_stand() {
    let server = Server::start().await;
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (id int8 PRIMARY KEY, n numeric(10,2), d date, s text)")
        .await
        .unwrap();
    for (sql, types) in [
        ("SELECT * FROM t WHERE id = $1", vec![Type::INT8]),
        (
            "INSERT INTO t (id, s, n) VALUES ($1, $2, $3)",
            vec![Type::INT8, Type::TEXT, Type::NUMERIC],
        ),
        (
            "UPDATE t SET d = $2 WHERE id = $1",
            vec![Type::INT8, Type::DATE],
        ),
        ("SELECT $1::int2 + $2", vec![Type::INT2, Type::INT2]),
        (
            "SELECT * FROM t LIMIT $1 OFFSET $2",
            vec![Type::INT8, Type::INT8],
        ),
        (
            "SELECT id FROM t WHERE s LIKE $1 AND id = ANY ($2)",
            vec![Type::TEXT, Type::INT8_ARRAY],
        ),
        (
            "SELECT id FROM t WHERE id IN ($1, $2)",
            vec![Type::INT8, Type::INT8],
        ),
        ("SELECT coalesce($1, s) FROM t", vec![Type::TEXT]),
        (
            "DELETE FROM t WHERE d BETWEEN $1 AND $2",
            vec![Type::DATE, Type::DATE],
        ),
        ("SELECT CASE WHEN $1 THEN 1 END", vec![Type::BOOL]),
    ] {
        let statement = client
            .prepare(sql)
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        assert_eq!(statement.params(), types, "{sql}");
    }
    let statement = client
        .prepare("SELECT id, n, d, s, count(*) OVER_ FROM t GROUP BY id")
        .await;
    let statement = statement.expect("functional dependency on the key");
    let names: Vec<&str> = statement.columns().iter().map(|c| c.name()).collect();
    assert_eq!(names, ["id", "n", "d", "s", "over_"]);
    let unknown = client
        .prepare("SELECT $1 FROM nosuch")
        .await
        .expect_err("no such table");
    assert_eq!(sqlstate(&unknown), "42P01");
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_give_rows_in_parts() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY)")
        .await
        .unwrap();
    client
        .batch_execute("INSERT INTO t SELECT generate_series(1, 100)")
        .await
        .unwrap();
    let txn = client.transaction().await.unwrap();
    let by_id = txn
        .prepare("SELECT id FROM t WHERE id > $1 ORDER BY id")
        .await
        .unwrap();
    let first = txn.bind(&by_id, &[&0i32]).await.unwrap();
    let second = txn.bind(&by_id, &[&50i32]).await.unwrap();
    let ids =
        |rows: Vec<tokio_postgres::Row>| -> Vec<i32> { rows.iter().map(|r| r.get(0)).collect() };
    assert_eq!(ids(txn.query_portal(&first, 3).await.unwrap()), [1, 2, 3]);
    assert_eq!(ids(txn.query_portal(&second, 2).await.unwrap()), [51, 52]);
    // What the transaction writes meanwhile, an open portal does not see.
    txn.execute("DELETE FROM t WHERE id IN (4, 53)", &[])
        .await
        .unwrap();
    assert_eq!(ids(txn.query_portal(&first, 2).await.unwrap()), [4, 5]);
    assert_eq!(ids(txn.query_portal(&second, 0).await.unwrap()).len(), 48);
    assert_eq!(ids(txn.query_portal(&second, 5).await.unwrap()).len(), 0);
    txn.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_of_a_failed_block_says_that_the_block_has_failed() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let txn = client.transaction().await.unwrap();
    let portal = txn.bind("SELECT 1", &[]).await.unwrap();
    txn.batch_execute("SELECT 1 / 0").await.unwrap_err();
    let refused = txn.query_portal(&portal, 1).await.unwrap_err();
    assert_eq!(refused.code().expect("the server's").code(), "25P02");
}

/// Drivers give the result of a call as a parameter of this type.
#[derive(Debug)]
struct Nothing;

impl ToSql for Nothing {
    fn to_sql(&self, _: &Type, _: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::VOID
    }

    tokio_postgres::types::to_sql_checked!();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_of_type_void_is_no_argument() {
    let server = Server::start().await;
    let client = server.connect().await;
    let call = client
        .prepare_typed("SELECT pg_backend_pid($1), left($2, 2)", &[Type::VOID])
        .await
        .unwrap();
    let row = client.query_one(&call, &[&Nothing, &"abc"]).await.unwrap();
    assert_eq!(row.get::<_, &str>(1), "ab");
    // As pgjdbc calls a function for its result.
    let call = client
        .prepare_typed("SELECT * FROM left($1, $2, 2) AS result", &[Type::VOID])
        .await
        .unwrap();
    let row = client.query_one(&call, &[&Nothing, &"abc"]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "ab");
    let refused = client.prepare("SELECT pg_backend_pid('')").await;
    assert_eq!(refused.unwrap_err().code().unwrap().code(), "42883");
}

/// Drivers know the error by its routine, and prepare again.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_result_type_names_the_routine() {
    let server = Server::start().await;
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (a int)")
        .await
        .unwrap();
    let all = client.prepare("SELECT * FROM t").await.unwrap();
    client
        .batch_execute("ALTER TABLE t ADD COLUMN b int")
        .await
        .unwrap();
    let refused = client.query(&all, &[]).await.unwrap_err();
    let refused = refused.as_db_error().expect("the server's");
    assert_eq!(refused.code().code(), "0A000");
    assert_eq!(refused.routine(), Some("RevalidateCachedQuery"));
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_statements_answer_in_order() {
    let server = Server::start().await;
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
        .await
        .unwrap();
    let insert = client
        .prepare("INSERT INTO t VALUES ($1, $2)")
        .await
        .unwrap();
    let select = client
        .prepare("SELECT v FROM t WHERE id = $1")
        .await
        .unwrap();
    let futures = (0..200i32).map(|i| {
        let (client, insert, select) = (&client, &insert, &select);
        async move {
            let doubled = i * 2;
            let (id, values): (i32, [&(dyn ToSql + Sync); 2]) = (i, [&i, &doubled]);
            // Sent without waiting: the second after the first on the same connection.
            let inserted = client.execute(insert, &values);
            let key: [&(dyn ToSql + Sync); 1] = [&id];
            let selected = client.query_one(select, &key);
            let (inserted, selected) = tokio::join!(inserted, selected);
            assert_eq!(inserted.unwrap(), 1);
            assert_eq!(selected.unwrap().get::<_, i32>(0), doubled);
        }
    });
    futures::future::join_all(futures).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_in_and_out() {
    use futures::{SinkExt, TryStreamExt};
    let server = Server::start().await;
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text, n numeric)")
        .await
        .unwrap();
    let sink = client.copy_in("COPY t FROM STDIN").await.unwrap();
    let mut sink = pin!(sink);
    for chunk in [
        "1\tone\t1.50\n2\t",
        "two\\twith tab\t\\N\n3\tback\\\\slash\t-0.1\n",
    ] {
        sink.send(bytes::Bytes::from(chunk)).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), 3);
    let stream = client
        .copy_out("COPY (SELECT * FROM t ORDER BY id) TO STDOUT")
        .await
        .unwrap();
    let chunks: Vec<bytes::Bytes> = stream.try_collect().await.unwrap();
    let text = String::from_utf8(chunks.concat()).unwrap();
    assert_eq!(
        text,
        "1\tone\t1.50\n2\ttwo\\twith tab\t\\N\n3\tback\\\\slash\t-0.1\n"
    );

    // A failed COPY leaves nothing.
    let sink = client
        .copy_in("COPY t FROM STDIN (FORMAT csv)")
        .await
        .unwrap();
    let mut sink = pin!(sink);
    sink.send(bytes::Bytes::from("4,four,4\n1,again,0\n"))
        .await
        .unwrap();
    assert_eq!(
        sqlstate(&sink.finish().await.expect_err("a duplicate")),
        "23505"
    );
    let rows: i64 = client
        .query_one("SELECT count(*) FROM t", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(rows, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_carry_their_fields() {
    let server = Server::start().await;
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE p (id int PRIMARY KEY); \
             CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL CONSTRAINT positive CHECK (n > 0), \
                             u text CONSTRAINT only_once UNIQUE, p int CONSTRAINT has_parent REFERENCES p); \
             INSERT INTO t VALUES (1, 1, 'x', NULL)",
        )
        .await
        .unwrap();
    for (sql, code, constraint, column) in [
        ("INSERT INTO t VALUES (1, 1)", "23505", Some("t_pkey"), None),
        (
            "INSERT INTO t VALUES (2, 1, 'x')",
            "23505",
            Some("only_once"),
            None,
        ),
        ("INSERT INTO t VALUES (2, NULL)", "23502", None, Some("n")),
        (
            "INSERT INTO t VALUES (2, 0)",
            "23514",
            Some("positive"),
            None,
        ),
        (
            "INSERT INTO t VALUES (2, 1, NULL, 5)",
            "23503",
            Some("has_parent"),
            None,
        ),
    ] {
        let error = client.batch_execute(sql).await.expect_err(sql);
        let error = error.as_db_error().expect("an error of the server");
        assert_eq!(error.code().code(), code, "{sql}");
        assert_eq!(error.constraint(), constraint, "{sql}");
        assert_eq!(error.column(), column, "{sql}");
        assert_eq!(error.table(), Some("t"), "{sql}");
        assert_eq!(error.schema(), Some("public"), "{sql}");
        assert_eq!(error.severity(), "ERROR");
        assert!(error.detail().is_some_and(|d| !d.is_empty()), "{sql}");
    }
    let error = client
        .batch_execute("SELECT 1 +")
        .await
        .expect_err("a syntax error");
    assert_eq!(sqlstate(&error), "42601");
    let error = client
        .batch_execute("SELECT nosuch FROM t")
        .await
        .expect_err("no column");
    let error = error.as_db_error().expect("an error of the server");
    assert_eq!(error.position(), Some(&ErrorPosition::Original(8)));
    assert_eq!(error.message(), "column \"nosuch\" does not exist");
}

/// Asks for the end of a statement until it has ended: a request that comes before the statement is for nobody.
async fn cancelled<T>(
    token: &tokio_postgres::CancelToken,
    statement: impl Future<Output = T>,
) -> T {
    let over = std::cell::Cell::new(false);
    let asking = async {
        while !over.get() {
            token.cancel_query(NoTls).await.expect("a request is taken");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let running = async {
        let ended = statement.await;
        over.set(true);
        ended
    };
    // No request is under way when it returns.
    tokio::join!(running, asking).0
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_cancelled_and_time_out() {
    let server = Server::start().await;
    let client = server.connect().await;
    let token = client.cancel_token();
    let slept = cancelled(&token, client.batch_execute("SELECT pg_sleep(600)")).await;
    assert_eq!(sqlstate(&slept.expect_err("cancelled")), "57014");
    client
        .batch_execute("SELECT 1")
        .await
        .expect("the session goes on");

    client
        .batch_execute("SET statement_timeout = '50ms'")
        .await
        .unwrap();
    let error = client
        .batch_execute("SELECT pg_sleep(60)")
        .await
        .expect_err("too long");
    assert_eq!(sqlstate(&error), "57014");
    client
        .batch_execute("RESET statement_timeout")
        .await
        .unwrap();

    // A wait for a row can be cancelled too, and leaves nothing behind.
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)")
        .await
        .unwrap();
    let other = server.connect().await;
    other
        .batch_execute("BEGIN; UPDATE t SET v = 1 WHERE id = 1")
        .await
        .unwrap();
    client
        .batch_execute("SET lock_timeout = '50ms'")
        .await
        .unwrap();
    let error = client
        .batch_execute("UPDATE t SET v = 2 WHERE id = 1")
        .await
        .expect_err("locked");
    assert_eq!(sqlstate(&error), "55P03");
    client.batch_execute("RESET lock_timeout").await.unwrap();
    let update = "UPDATE t SET v = 2 WHERE id = 1";
    let waited = cancelled(&token, client.batch_execute(update)).await;
    assert_eq!(sqlstate(&waited.expect_err("cancelled")), "57014");
    other.batch_execute("COMMIT").await.unwrap();
    client
        .batch_execute("UPDATE t SET v = v + 10 WHERE id = 1")
        .await
        .unwrap();
    let v: i32 = client
        .query_one("SELECT v FROM t", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(v, 11);

    // A transaction that idles too long is ended, and its lock with it.
    other.batch_execute("SET idle_in_transaction_session_timeout = '100ms'; BEGIN; UPDATE t SET v = 0 WHERE id = 1").await.unwrap();
    client
        .batch_execute("UPDATE t SET v = v + 10 WHERE id = 1")
        .await
        .unwrap();
    let v: i32 = client
        .query_one("SELECT v FROM t", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(v, 21);
    other
        .batch_execute("COMMIT")
        .await
        .expect_err("the session was ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_the_driver() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY)")
        .await
        .unwrap();
    {
        let mut txn = client
            .build_transaction()
            .isolation_level(IsolationLevel::Serializable)
            .start()
            .await
            .unwrap();
        txn.execute("INSERT INTO t VALUES (1)", &[]).await.unwrap();
        {
            let inner = txn.savepoint("one").await.unwrap();
            inner
                .execute("INSERT INTO t VALUES (2)", &[])
                .await
                .unwrap();
            inner
                .execute("INSERT INTO t VALUES (1)", &[])
                .await
                .expect_err("twice");
            inner.rollback().await.unwrap();
        }
        txn.execute("INSERT INTO t VALUES (3)", &[]).await.unwrap();
        txn.commit().await.unwrap();
    }
    {
        let txn = client.transaction().await.unwrap();
        txn.execute("INSERT INTO t VALUES (4)", &[]).await.unwrap();
        // Dropped: rolled back.
    }
    let read_only = client
        .build_transaction()
        .isolation_level(IsolationLevel::Serializable)
        .read_only(true)
        .deferrable(true)
        .start()
        .await
        .unwrap();
    let rows = read_only
        .query("SELECT id FROM t ORDER BY id", &[])
        .await
        .unwrap();
    assert_eq!(rows.iter().map(|r| r.get(0)).collect::<Vec<i32>>(), [1, 3]);
    let error = read_only
        .execute("DELETE FROM t", &[])
        .await
        .expect_err("read only");
    assert_eq!(sqlstate(&error), "25006");
    drop(read_only);

    // A plan that was prepared before the table changed still gives the right rows.
    let statement = client
        .prepare("SELECT * FROM t WHERE id = $1")
        .await
        .unwrap();
    assert_eq!(client.query(&statement, &[&1i32]).await.unwrap().len(), 1);
    client
        .batch_execute("CREATE INDEX more ON t (id)")
        .await
        .unwrap();
    assert_eq!(client.query(&statement, &[&1i32]).await.unwrap().len(), 1);
    client
        .batch_execute("ALTER TABLE t ADD COLUMN v int")
        .await
        .unwrap();
    let error = client
        .query(&statement, &[&1i32])
        .await
        .expect_err("its columns have changed");
    assert_eq!(sqlstate(&error), "0A000", "{error:?}");

    let messages = client
        .simple_query("SELECT 1; INSERT INTO t VALUES (9); SELECT 2, 3")
        .await
        .unwrap();
    let complete = messages
        .iter()
        .filter(|m| matches!(m, SimpleQueryMessage::CommandComplete(_)));
    assert_eq!(complete.count(), 3);
}

/// A transaction that lost says which row, of which table, and who changed it: for reads by key, of what was not there, and of ranges.
#[tokio::test(flavor = "multi_thread")]
async fn who_lost_learns_which_row_and_to_whom() {
    if common::on_postgres() {
        return;
    }
    let server = Server::start().await;
    let (loser, winner) = (server.connect().await, server.connect().await);
    loser
        .batch_execute(
            "CREATE TABLE fish (id int, part int, n int, PRIMARY KEY (id, part)); CREATE TABLE mine (id int PRIMARY KEY);
             INSERT INTO fish VALUES (1, 1, 0), (2, 1, 0), (2, 2, 0), (3, 1, 0)",
        )
        .await
        .unwrap();
    for (i, (read, write, key)) in [
        (
            "n FROM fish WHERE id = 1 AND part = 1",
            "UPDATE fish SET n = n + 1 WHERE id = 1",
            "(id, part)=(1, 1)",
        ),
        (
            "n FROM fish WHERE id = 7 AND part = 7",
            "INSERT INTO fish VALUES (7, 7, 7)",
            "(id, part)=(7, 7)",
        ),
        (
            "n FROM fish WHERE id = 2",
            "UPDATE fish SET n = n + 1 WHERE id = 2 AND part = 2",
            "(id, part)=(2, 2)",
        ),
        (
            "count(*) FROM fish",
            "DELETE FROM fish WHERE id = 3",
            "(id, part)=(3, 1)",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let sql = format!(
            "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT {read}; INSERT INTO mine VALUES ({i})"
        );
        loser.batch_execute(&sql).await.unwrap();
        winner.batch_execute(write).await.unwrap();
        let error = loser.batch_execute("COMMIT").await.unwrap_err();
        let error = error.as_db_error().expect("the server says so");
        assert_eq!(
            (error.code().code(), error.table()),
            ("40001", Some("fish"))
        );
        let detail = error.detail().expect("a detail");
        let (row, position) = detail
            .split_once(" was changed by the transaction that committed at ")
            .expect(detail);
        assert_eq!(row, format!("Row {key} of table \"fish\""));
        assert!(position.contains('.'), "{detail}");
    }
}

/// Of two that wait for each other's row one is told which row, and who has it; schemas are the tables' own.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_and_a_lost_race_name_schema_table_key_and_winner() {
    if common::on_postgres() {
        return;
    }
    let server = Server::start().await;
    let (a, b) = (server.connect().await, server.connect().await);
    let table = "CREATE SCHEMA app; CREATE TABLE app.fish (id int PRIMARY KEY, n int);
                 INSERT INTO app.fish VALUES (1, 0), (2, 0)";
    a.batch_execute(table).await.unwrap();
    let change = |id: i32| format!("UPDATE app.fish SET n = n + 1 WHERE id = {id}");
    for (client, id) in [(&a, 1), (&b, 2)] {
        let sql = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {}", change(id));
        client.batch_execute(&sql).await.unwrap();
    }
    let end = async |client: &tokio_postgres::Client, id: i32| {
        let done = client.batch_execute(&change(id)).await;
        client.batch_execute("ROLLBACK").await.unwrap();
        done.err().map(|e| (id, e))
    };
    let (first, second) = tokio::join!(end(&a, 2), end(&b, 1));
    assert!(first.is_none() || second.is_none(), "one of them wins");
    let (id, error) = first.or(second).expect("one of them loses");
    let error = error.as_db_error().expect("the server says so");
    let fields = |e: &tokio_postgres::error::DbError| {
        let owned = |s: Option<&str>| s.unwrap_or_default().to_owned();
        (
            e.code().code().to_owned(),
            owned(e.schema()),
            owned(e.table()),
        )
    };
    let (app, fish) = ("app".to_owned(), "fish".to_owned());
    assert_eq!(fields(error), ("40P01".into(), app.clone(), fish.clone()));
    let detail = error.detail().expect("a detail");
    let row = format!("Waiting for row (id)=({id}) of table \"fish\", which transaction ");
    assert!(detail.starts_with(&row), "{detail}");

    let read = "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT n FROM app.fish WHERE id = 1;
                INSERT INTO app.fish VALUES (3, 3)";
    a.batch_execute(read).await.unwrap();
    b.batch_execute(&change(1)).await.unwrap();
    let error = a.batch_execute("COMMIT").await.unwrap_err();
    let error = error.as_db_error().expect("the server says so");
    assert_eq!(fields(error), ("40001".into(), app, fish));
}

/// Statements of the simple protocol that differ in their numbers only share a plan, and still mean what they say.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_do_not_make_a_plan_each() {
    if common::on_postgres() {
        return;
    }
    let http = format!("127.0.0.1:{}", common::free_port());
    let server = Server::start_with(&[("CANON_HTTP", &http)]).await;
    let client = server.connect().await;
    let plans = || {
        use std::io::{Read, Write};
        let mut s = std::net::TcpStream::connect(&http).expect("HTTP answers");
        s.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        s.read_to_string(&mut text).unwrap();
        let made = text
            .lines()
            .find_map(|l| l.strip_prefix("canon_plans_made_total "));
        made.expect("the metric").parse::<f64>().unwrap()
    };
    let table = "CREATE TABLE t (id bigint PRIMARY KEY, n smallint, v text)";
    client.batch_execute(table).await.unwrap();
    let before = plans();
    for i in 0..50 {
        for sql in [
            format!("INSERT INTO t VALUES ({i}, {i}, 'v')"),
            format!("UPDATE t SET n = n + -{i} WHERE id = {i}"),
            format!(
                "SELECT n FROM t WHERE id = {i} AND n < {} ORDER BY 1 LIMIT 1",
                i + 1
            ),
        ] {
            client.batch_execute(&sql).await.unwrap();
        }
    }
    let made = plans() - before;
    assert!(made < 10.0, "{made} plans for three statements");
    let text = |m: &[SimpleQueryMessage]| match &m[1] {
        SimpleQueryMessage::Row(r) => r.get(0).map(str::to_owned),
        other => panic!("{other:?}"),
    };
    let found = client
        .simple_query("SELECT sum(id) + 1 FROM t WHERE id IN (3, 4, 4000000000) AND n = 0")
        .await
        .unwrap();
    assert_eq!(text(&found).as_deref(), Some("8"));
    // The error is that of the text as it is.
    let refused = client
        .batch_execute("SELECT n FROM t WHERE id = 5 AND nope = 6")
        .await;
    let refused = refused.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "42703");
    assert_eq!(refused.position(), Some(&ErrorPosition::Original(34)));
    let refused = client
        .batch_execute("INSERT INTO t VALUES (70, 40000, 'v')")
        .await;
    assert_eq!(sqlstate(&refused.unwrap_err()), "22003");
}

/// The bytes of a value as they came.
struct Bytes(Vec<u8>);

impl<'a> tokio_postgres::types::FromSql<'a> for Bytes {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Bytes, Box<dyn Error + Sync + Send>> {
        Ok(Bytes(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_as_values_are_binary_where_binary_is_asked_for() {
    let server = Server::start().await;
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE t (a int, b text, c bool); INSERT INTO t VALUES (7, NULL, true)",
        )
        .await
        .unwrap();
    let mut whole = vec![0, 0, 0, 3, 0, 0, 0, 23, 0, 0, 0, 4, 0, 0, 0, 7];
    whole.extend([0, 0, 0, 25, 255, 255, 255, 255, 0, 0, 0, 16, 0, 0, 0, 1, 1]);
    let pair = vec![
        0, 0, 0, 2, 0, 0, 0, 23, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 25, 0, 0, 0, 2, b',', b'"',
    ];
    for (sql, expected) in [
        ("SELECT t FROM t", &whole),
        (
            "SELECT x FROM (SELECT t AS x FROM t ORDER BY a LIMIT 1) s",
            &whole,
        ),
        ("SELECT row(1, ',\"'::text)", &pair),
    ] {
        let row = client.query_one(sql, &[]).await.unwrap();
        assert_eq!(row.get::<_, Bytes>(0).0, *expected, "{sql}");
    }
}
