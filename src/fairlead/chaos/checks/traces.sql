-- name: tables
-- Every table with rows of its own.
select quote_ident(c.relname) from pg_catalog.pg_class c
where c.relnamespace = 'fairlead'::regnamespace and c.relkind = 'r' order by c.relname;

-- name: rows
select 1 from fairlead.a_table t
where strpos(t::text, %(mark)s) > 0 or strpos(t::text, encode(convert_to(%(mark)s, 'UTF8'), 'hex')) > 0;

-- name: errors
-- Jobs and attempts whose errors say this.
select 'job ' || j.id from fairlead.job_records j where j.last_error ~ %(errors)s
union all
select 'job ' || a.job_id || ', attempt ' || a.attempt_no from fairlead.job_attempts a where a.error_text ~ %(errors)s;
