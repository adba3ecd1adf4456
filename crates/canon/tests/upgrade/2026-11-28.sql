CREATE SCHEMA app;
CREATE TABLE app.customers (id int PRIMARY KEY, name text NOT NULL, mail varchar(80) UNIQUE, born date, tags text[], extra jsonb);
CREATE TABLE app.orders (id serial PRIMARY KEY, customer int NOT NULL REFERENCES app.customers ON DELETE CASCADE, placed timestamptz NOT NULL, total numeric(12,2) NOT NULL CHECK (total >= 0));
CREATE INDEX orders_by_time ON app.orders (placed DESC, id);
CREATE TABLE stock (id int8 PRIMARY KEY, qty int NOT NULL CHECK (qty >= 0), note text) WITH (split = 'qty');
CREATE TABLE plain (a int, b uuid, c bytea, d float8, e interval, f bool);
CREATE SEQUENCE numbers START 100 INCREMENT 5;
CREATE VIEW app.spending AS SELECT c.name, sum(o.total) AS spent FROM app.customers c JOIN app.orders o ON o.customer = c.id GROUP BY c.name;
CREATE ROLE reader LOGIN PASSWORD 'secret';
GRANT USAGE ON SCHEMA app TO reader;
GRANT SELECT ON app.customers TO reader;
COMMENT ON TABLE app.orders IS 'what was bought';
INSERT INTO app.customers SELECT g, 'customer ' || g, 'c' || g || '@example.org', date '1970-01-01' + g, ARRAY['a' || g, 'b'], jsonb_build_object('n', g) FROM generate_series(1, 500) g;
INSERT INTO app.orders (customer, placed, total) SELECT 1 + g % 500, timestamptz '2026-11-01 12:00:00+00' + g * interval '1 minute', g * 1.25 FROM generate_series(1, 2000) g;
INSERT INTO stock SELECT g, g * 10, 'shelf ' || g FROM generate_series(1, 50) g;
INSERT INTO plain VALUES (1, '00000000-0000-0000-0000-000000000001', '\x00ff', 1.5, '1 day 2 hours', true), (NULL, NULL, NULL, 'NaN', NULL, NULL);
ALTER TABLE app.customers ADD COLUMN level int NOT NULL DEFAULT 3;
ALTER TABLE app.customers DROP COLUMN born;
UPDATE app.customers SET level = 7 WHERE id % 10 = 0;
DELETE FROM app.customers WHERE id > 490;
UPDATE stock SET qty = qty - 1 WHERE id <= 25 AND qty >= 1;
SELECT nextval('numbers'), nextval('numbers');
BEGIN; INSERT INTO stock VALUES (1000, 5, 'two'); SAVEPOINT s; DELETE FROM stock; ROLLBACK TO s; COMMIT;
-- A checkpoint was taken here, and a replica was copied. What follows stands in the log alone:
INSERT INTO plain SELECT g FROM generate_series(10,29) g;
UPDATE stock SET qty = qty + 2 WHERE id = 7;
-- Then both nodes were killed (SIGKILL).
