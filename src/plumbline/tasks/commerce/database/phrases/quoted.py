"""Clauses with a word or a sentence in double quotes, by what they say."""

QUOTED = {
    "late": (
        "prometeram \"entrega <rápida|expressa>\" e [atrasou {atraso}]",
        "no site dizia \"<chega em|entrega em até> {promessa}\" e [<levou|demorou> {espera}]",
        "o status ficou em \"<em trânsito|a caminho>\" e [chegou {atraso} depois do prazo]",
        "disseram que era \"<só um imprevisto|normal>\", mas [atrasou {atraso}]",
    ),
    "missing": (
        "o rastreio diz \"<em trânsito|a caminho|aguardando>\" e [{o_p} não chega]",
        "falaram \"<aguarde|chega amanhã|é só esperar>\" e [até hoje não recebi {o_p}]",
        "a tal \"entrega garantida\" não existe, [não recebi {o_p}]",
        "o vendedor diz que \"já <resolveu|vai ver isso>\" e [{o_p} não chega]",
    ),
    "cancelled": (
        "o pedido aparece como \"cancelado\" e [não recebi {o_p}]",
        "disseram \"acabou o estoque\" e [cancelaram <a compra|o pedido>]",
    ),
    "part": (
        "no site está \"<entregue|pedido concluído>\" mas [{falta_v}]",
        "o \"pedido completo\" chegou pela metade, [{falta_v}]",
    ),
    "defective": (
        "o produto \"<novo|zero>\" [veio com <defeito|marca de uso>]",
        "o anúncio dizia \"alta <qualidade|resistência>\" e [<estragou|deu defeito> em {uso}]",
        "o vendedor falou que \"<é assim mesmo|é normal>\", mas [{o_p} veio com defeito]",
        "de \"primeira linha\" não tem nada, [a qualidade é ruim]",
    ),
    "wrong": (
        "o vendedor disse que era \"original\" e [{o_p} é falsificad@]",
        "o anúncio dizia \"original\" e [veio {um_p} falsificad@]",
        "no anúncio estava \"<igual à foto|modelo novo>\" e [veio outra coisa]",
        "na nota está \"<modelo|ref.> A\" e [mandaram outro modelo]",
    ),
    "service": (
        "só respondem \"<vamos verificar|aguarde|já encaminhamos>\" e [ninguém resolve nada]",
        "a atendente {nome_f} disse \"<não posso fazer nada|o problema é seu>\", [atendimento ruim]",
        "o \"suporte\" [não responde <nada|as mensagens>]",
    ),
    "price": (
        "a \"<promoção|oferta>\" [saiu mais cara que na loja do bairro]",
        "\"frete <econômico|especial>\" de {frete}, [muito caro]",
        "anunciam \"<preço baixo|imperdível>\" e [{o_p} é car@ demais]",
    ),
    "praise_product": (
        "{o_p} é realmente \"<original|de primeira|tudo isso>\", gostei",
        "gostei {do_p}, é \"<igual à foto|bom e bonito|tudo isso>\" mesmo",
        "como diz {meu_parente}: \"<coisa boa|valeu a pena>\"",
        "{meu_parente} falou \"<que bonito|gostei|que beleza>\" quando viu {o_p}",
        "o anúncio dizia \"<alta qualidade|produto premium>\" e é mesmo",
        "{o_p} passou no teste {do_parente}: \"<aprovado|gostei|pode ficar>\"",
    ),
    "praise_delivery": (
        "a entrega foi \"<voando|a jato>\"",
        "chegou \"<num piscar de olhos|voando>\"",
        "no site dizia \"entrega <rápida|expressa>\" e foi mesmo",
    ),
    "praise_price": (
        "a \"<promoção|oferta>\" era de verdade, preço bom",
        "o famoso \"<barato e bom|bom e barato>\"",
    ),
    "praise_service": (
        "o vendedor respondeu \"<pode deixar|já resolvo>\" e resolveu mesmo",
        "a atendente {nome_f} disse \"<pode contar comigo|eu resolvo>\" e resolveu",
    ),
    "praise_general": (
        "como diz {meu_parente}: \"<gostei|aprovado|muito bom>\"",
        "só tenho uma palavra: \"<gostei|aprovado|satisfeit§>\"",
        "posso dizer: \"<deu tudo certo|valeu a pena>\"",
        "minha avaliação é \"<muito bom|bom demais|aprovado>\"",
    ),
}  # fmt: skip
