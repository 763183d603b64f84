-- The audit log is append-only: its triggers call this on update, delete and truncate.
create or replace function fairlead.refuse_change() returns trigger language plpgsql volatile as $$
begin
    raise exception 'the audit log cannot be changed (% on %)', lower(tg_op), tg_table_name
        using errcode = 'insufficient_privilege';
end
$$;
