-- When a bucket has a token beyond the `promised` ones, if nothing else takes one.
create or replace function fairlead.next_token_at(full_at timestamptz, rate jsonb, promised double precision)
returns timestamptz language sql immutable parallel safe as $$
    select full_at - make_interval(secs => floor(
        ((rate ->> 'burst')::float8 - 1 - promised) * (rate ->> 'per_seconds')::float8 * 1000000
        / (rate ->> 'limit')::float8) / 1000000)
$$;
grant execute on function fairlead.next_token_at to fairlead_tenant;
