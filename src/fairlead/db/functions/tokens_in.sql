-- How many tokens a bucket has at a moment, parts of tokens included. Since its last start, tokens flowed in by the rate of
-- now, which may be another than then.
create or replace function fairlead.tokens_in(
    tokens double precision, counted_at timestamptz, rate jsonb, moment timestamptz
) returns double precision language sql immutable parallel safe as $$
    select least((rate ->> 'burst')::float8, tokens + greatest(0, date_part('epoch', moment - counted_at))
        * (rate ->> 'limit')::float8 / (rate ->> 'per_seconds')::float8)
$$;
grant execute on function fairlead.tokens_in to fairlead_tenant;
