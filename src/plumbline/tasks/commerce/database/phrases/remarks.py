"""What says nothing for or against: neutral remarks, lukewarm words, background, greetings and signatures."""

LUKEWARM = (
    "produto <mediano|razoável|regular>",
    "{o_p} é <median@|razoável|simples>",
    "<razoável|mais ou menos|regular|mediano>",
    "nem bom nem ruim",
    "{o_p} é mais ou menos",
    "dá para usar",
    "nada de especial",
    "<é|achei> só <razoável|regular>",
    "achei {o_p} <median@|simples|razoável>",
    "dá para o gasto",
    "nem gostei nem desgostei",
    "compra regular",
)
"""Words of the middle: they are no praise and no complaint."""

NEUTRAL_RECEIVED = (
    "ainda não <usei|testei|experimentei|abri> {o_x}",
    "ainda não testei",
    "recebi {o_p} {d_cheg}",
    "{o_p} foi entregue {d_cheg}",
    "é presente, ainda não foi aberto",
    "vou usar <mais para frente|no próximo mês|nas férias> e depois comento",
    "comprei para <dar de presente|presentear {parente}>, ainda não entreguei",
    "só vou <testar|usar> <na semana que vem|no fim de semana|depois da mudança>",
    "<recebi|recebido>, ainda vou <testar|usar|abrir>",
    "recebi o produto",
    "produto <recebido|entregue>",
    "{o_p} <chegou|foi entregue> <na portaria|no trabalho|na casa {do_parente}>",
    "quem recebeu foi {parente}",
    "por enquanto não tenho opinião",
    "depois eu volto para <contar|dizer> o que achei",
    "preciso usar mais para <opinar|dizer algo|avaliar>",
    "não sou eu que vou usar",
    "comprei a pedido {do_parente}",
    "estou esperando o fim de semana para testar",
    "o pacote ainda está fechado",
    "<veio|chegou> em uma caixa <grande|pequena|média>",
    "avalio depois de usar",
    "ainda não deu tempo de <usar|ver com calma|tirar da caixa>",
    "está guardad@ para <o Natal|a mudança|o aniversário {do_parente}>",
    "{parente} recebeu, eu ainda não vi",
    "{o_x} é para {parente}",
    "nada mais a comentar",
)

BEFORE = (
    "comprei {um_p} para <presentear {parente}|{parente}|dar de presente>",
    "comprei {um_p} {d_compra}",
    "fiz <a compra|o pedido> {d_compra}",
    "fiz <o pedido|a compra> {d_compra} e paguei {pagamento}",
    "é a <primeira|segunda|terceira> vez que compro <aqui|nessa loja|pelo site>",
    "compro pela internet há <muitos anos|um bom tempo|uns cinco anos>",
    "moro {em_cidade}",
    "comprei {o_p} para o aniversário {do_parente}",
    "estava precisando de {um_p} <há tempos|com urgência|>",
    "pesquisei <preços|em vários sites|uns dias> antes de comprar {um_p}",
    "{parente} <me pediu|queria> {um_p} e comprei <nessa loja|nesse site|aqui>",
    "comprei {um_p} <numa promoção|por {preco}> {d_compra}",
    "vi {o_p} <num anúncio|na internet|na casa {do_parente}> e resolvi comprar",
    "fiz essa compra para {parente}",
    "escolhi {o_p} pela foto",
    "comprei {o_p} pelo <celular|computador>",
)
"""Background that opens a long review."""

AFTER = (
    "comprei {d_compra} e paguei {pagamento}",
    "moro {em_cidade} e sempre tem <alguém em casa|gente na portaria> para receber",
    "escrevo isso para <ajudar|orientar> quem <está pensando em|pensa em|vai> comprar {um_p} pela internet",
    "o pedido foi feito pelo <celular|computador|aplicativo> e o pagamento foi {pagamento}",
    "comprei para {parente}, que mora <{em_cidade}|no interior|em outro estado>, e mandei entregar lá",
    "estou contando isso porque <sempre leio|costumo ler> os comentários antes de comprar qualquer coisa",
    "foi a <primeira|segunda|terceira> compra que fiz <esse ano|esse mês|pelo site>",
    "deixo aqui <o meu|meu> relato para <quem quiser saber|os outros clientes>",
    "o pacote foi enviado para a casa {do_parente} porque eu trabalho <o dia todo|fora|em outra cidade>",
    "quem me <falou|contou> <do site|da loja> foi {parente}, que compra <de tudo|sempre> pela internet",
    "demorei uns dias para escrever porque estava <viajando|sem internet|sem tempo>",
    "volto a escrever <daqui a uns dias|no fim do mês>",
    "tenho <fotos|vídeo> <no celular|aqui> se alguém quiser ver",
    "na caixa tinha o meu nome e o endereço {do_parente} escritos à mão",
    "sou {profissao} e compro <quase tudo|de tudo> pela internet",
    "a compra ficou em {preco} e dividi com {parente}",
    "estava na dúvida entre dois modelos e acabei escolhendo esse por causa <do preço|da marca|da foto>",
    "meu endereço é fácil de achar, fica <perto da praça|em frente à escola|na avenida principal|ao lado do mercado>",
    "sempre confiro o número do pedido no e-mail e <anoto|guardo> tudo em uma planilha",
    "meu prédio tem portaria e quem costuma receber é o <porteiro|zelador>, que avisa pelo interfone",
    "tenho <dois|três> filhos pequenos e quase não saio de casa para <fazer compras|ir ao shopping>",
    "trabalho <à noite|em casa|no centro> e por isso compro pela internet <no intervalo|de madrugada|aos domingos>",
    "minha internet caiu na hora do pagamento e tive que <fazer tudo de novo|começar outra vez>",
    "usei o endereço <do trabalho porque lá|de casa porque aqui> tem mais gente durante o dia",
    "estou escrevendo pelo celular, então desculpem os erros",
    "o site pede uma avaliação e por isso estou <respondendo|escrevendo>",
    "a caixa era <parda|branca> e tinha <uma fita azul|um adesivo com o código|o logotipo da loja>",
    "conversei {com_parente} antes de fazer a compra, porque <dividimos a casa|pagamos as contas juntos>",
    "fiz o cadastro na hora e <levei uns dez minutos|foi preciso confirmar o e-mail>",
    "na minha rua os números são fora de ordem e é preciso perguntar para <os vizinhos|o pessoal do bar>",
    "no mês passado <mudei de casa|mudei de emprego> e precisei comprar <várias coisas|um monte de coisas>",
    "já tinha visto <parecido|um parecido> em <uma loja do shopping|uma feira|um vídeo> antes de escolher",
    "aqui na minha cidade o comércio é pequeno e <quase todo mundo|o pessoal> compra pela internet",
    "eu mesm§ fiz o pedido <no sábado à noite|na hora do almoço>, depois de ver as fotos",
    "comprei {n_vezes} nesse mesmo site, sempre <pelo celular|para a minha casa|para dar de presente>",
)
"""Background that closes a long review; it may be cut off anywhere."""

AFTER_RECEIVED = (
    "quem abriu a caixa foi {parente}, eu só vi {o_p} <de noite|no outro dia|quando cheguei do trabalho>",
    "recebi {d_cheg} <de manhã|de tarde|no fim da tarde>, quem assinou foi {parente}",
    "abri a caixa {com_parente} no mesmo dia e tirei <algumas fotos|fotos> de tudo",
)
"""The same, where something was received."""

NEUTRAL_OF = {
    "elec": (
        "ainda não <liguei|instalei> {o_p}",
        "ainda não deu tempo de <instalar|ligar|testar>",
        "estou esperando o <eletricista|técnico> para instalar",
    ),
    "furn": (
        "ainda não montei {o_p}",
        "{o_p} ainda está na caixa, <falta montar|só vou montar depois da mudança>",
        "estou esperando o montador",
    ),
    "home": ("{o_p} ainda está na caixa", "vou usar {o_p} <no Natal|no fim do ano|na casa nova>"),
    "linen": ("ainda não lavei {o_p}", "ainda não <usei|lavei> para ver como fica"),
    "wear": ("ainda não <lavei|provei|vesti> {o_p}", "ainda vou ver se serve"),
    "shoe": ("ainda não <provei|usei> {o_p}", "ainda vou ver se serve"),
    "bag": ("só vou usar {o_p} na viagem", "ainda não usei {o_p}"),
    "cosm": ("ainda não abri {o_p}", "comecei a usar {o_p} agora, ainda é cedo para dizer"),
    "food": ("ainda não <abri|provei> {o_p}",),
    "book": ("ainda não <li|abri|comecei>", "comprei {o_p} para <a faculdade|um concurso|um trabalho>"),
    "disc": ("ainda não <ouvi|assisti|abri>",),
    "gear": ("ainda não usei {o_p}", "{o_p} ainda está na caixa"),
}
"""Neutral remarks that fit one kind of product."""

AFTER_KEPT = (
    "vou <guardar|deixar guardad@> {o_p} para <o Natal|o aniversário {do_parente}|a mudança>",
    "{parente} vai usar {o_p} <a partir do mês que vem|a partir de segunda|quando voltar de férias>",
)
"""Background that closes a long review of somebody who keeps the product."""
AFTER_OF = {
    "elec": ("eu já tinha {um_p} <bem antig@|de outra marca> que <queimou|parou de ligar> no ano passado",),
    "furn": (
        "eu já tinha {um_p} <bem velh@|antig@> que vou doar para {parente}",
        "coloquei {o_p} <no quarto|na sala|no escritório> por enquanto, depois vejo onde vai ficar",
    ),
    "home": ("eu já tinha {um_p} <bem velh@|antig@> que ganhei de casamento e resolvi trocar",),
    "linen": ("já tenho {um_p} <parecid@|de outra cor> que comprei no ano passado em uma loja do centro",),
    "wear": ("já tenho {um_p} <parecid@|de outra cor> que comprei no ano passado em uma loja do centro",),
    "bag": ("eu já tinha {um_p} <antig@|bem velh@> que emprestei para {parente} no ano passado",),
    "gear": ("eu já tinha {um_p} <antig@|bem velh@> que emprestei para {parente} no ano passado",),
}  # fmt: skip
"""The same, by kind of product."""

GREETINGS = ("boa tarde", "bom dia", "boa noite", "olá", "oi")
FORMAL_GREETINGS = ("prezados", "boa tarde", "bom dia", "senhores")
CLOSINGS_HAPPY = ("obrigad§", "obrigad§ mesmo", "obrigad§ e até a próxima", "valeu", "abraço", "grat§")
CLOSINGS_ANY = ("att, {assina}", "atenciosamente, {assina}", "grat§", "{assina}")
