-- Whether Citus distributes this schema.
create or replace function fairlead.is_distributed() returns boolean language plpgsql stable as $$
declare
    answer boolean := false;
begin
    if to_regclass('pg_catalog.pg_dist_schema') is not null then
        execute 'select exists (select from pg_catalog.pg_dist_schema where schemaid = $1)'
        into answer using 'fairlead'::regnamespace::oid;
    end if;
    return answer;
end
$$;
